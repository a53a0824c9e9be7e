import { scenarios } from "../scenario/scenarios.ts";
import { isEverything, selectedNames } from "../scenario/selection.ts";
import { updates } from "../scenario/updates.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { guestCheckNames } from "./ipvs/guest-checks.ts";

/** Each takes a minute or two in QEMU, where its clients sometimes got no answer within the time limit. */
const tooSlowInQemu = ["an endpoint is removed", "an endpoint terminates"];

const all = [...[...scenarios, ...updates].map(({ name }) => name), ...guestCheckNames];
/** KPNG_IPVS_SCENARIOS selects others by a regular expression. */
const wanted = process.env.KPNG_IPVS_SCENARIOS;
const chosen = all.filter((name) => wanted !== undefined && new RegExp(wanted).test(name));
const emulated = [...selectedNames, ...(isEverything ? guestCheckNames : [])].filter(
  (name) => !tooSlowInQemu.includes(name),
);

describeGuest("kpng-ipvs", {
  program: "test/kernel/ipvs/guest-main.ts",
  siblings: [
    "test/kernel/ipvs/node-main.ts",
    "test/kernel/laboratory/sctp.py",
    "services/laboratory/src/agent/agent.ts",
  ],
  names: wanted !== undefined ? chosen : isEverything ? all : selectedNames,
  emulatedNames: wanted !== undefined ? chosen : emulated,
});
