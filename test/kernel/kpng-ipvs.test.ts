import { isEverything, selectedNames } from "../scenario/selection.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { guestCheckNames } from "./ipvs/guest-checks.ts";
import { scenarioNames, wantedNames } from "./ipvs/wanted-names.ts";

/** Each takes a minute or two in QEMU, where its clients sometimes got no answer within the time limit. */
const tooSlowInQemu = new Set(["an endpoint is removed", "an endpoint terminates"]);
const names = [...scenarioNames, ...guestCheckNames];
const emulated = [...selectedNames, ...(isEverything ? guestCheckNames : [])].filter(
  (name) => !tooSlowInQemu.has(name),
);

describeGuest("kpng-ipvs", {
  program: "test/kernel/ipvs/guest-main.ts",
  siblings: [
    "test/kernel/ipvs/node-main.ts",
    "test/kernel/laboratory/sctp.py",
    "services/laboratory/src/agent/agent.ts",
  ],
  names: wantedNames(names, new Set(isEverything ? names : selectedNames)),
  emulatedNames: wantedNames(names, new Set(emulated)),
});
