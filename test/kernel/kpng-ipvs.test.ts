import { scenarios } from "../scenario/scenarios.ts";
import { updates } from "../scenario/updates.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { guestCheckNames, quickScenarios } from "./ipvs/guest-checks.ts";

/**
 * Scenarios, updates and checks to run, as a regular expression of their names: those that a quick run has, or the ones
 * asked for.
 */
const wanted = process.env.KPNG_IPVS_SCENARIOS;
const quick = quickScenarios.union(new Set(guestCheckNames));

describeGuest("kpng-ipvs", {
  program: "test/kernel/ipvs/guest-main.ts",
  names: [...[...scenarios, ...updates].map(({ name }) => name), ...guestCheckNames].filter((name) =>
    wanted === undefined ? quick.has(name) : new RegExp(wanted).test(name),
  ),
});
