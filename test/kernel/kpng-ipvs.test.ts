import { describeGuest } from "./ipvs/describe-guest.ts";
import { guestCheckNames } from "./ipvs/guest-checks.ts";
import { scenarioNames, wantedNames } from "./ipvs/wanted-names.ts";

const names = [...scenarioNames, ...guestCheckNames];

/** Where IPVS differs most from rules. Under CI=true, a run has all scenarios and updates, except in QEMU. */
const quickScenarios = [
  "a node port",
  "external policy Local with an endpoint on the node",
  "external policy Local without an endpoint on the node",
  "external policy Local with source ranges",
  "internal policy Local without an endpoint on the node",
  "no endpoint",
  "policy DROP in INPUT",
  "session affinity",
  "an endpoint is removed",
  "an endpoint terminates",
  "the last endpoint is removed",
  "session affinity is enabled",
  "the endpoint of clients with affinity is removed",
];

const quickNames = [...quickScenarios, ...guestCheckNames];

/** Each takes a minute or two in QEMU, where its clients sometimes got no answer within the time limit. */
const tooSlowInQemu = new Set(["an endpoint is removed", "an endpoint terminates"]);

describeGuest("kpng-ipvs", {
  program: "test/kernel/ipvs/guest-main.ts",
  names: wantedNames(names, new Set(process.env.CI === "true" ? names : quickNames)),
  emulatedNames: wantedNames(names, new Set(quickNames.filter((name) => !tooSlowInQemu.has(name)))),
});
