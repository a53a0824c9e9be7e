import { packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { guestCheckNames } from "./ipvs/guest-checks.ts";
import { isEverything, selectedCases } from "./selection.ts";

/** Each takes a minute or two in QEMU, where its clients sometimes got no answer within the time limit. */
const tooSlowInQemu = ["update/an-endpoint-is-added", "update/an-endpoint-is-removed", "update/an-endpoint-terminates"];

const all = [...packetCases.map(({ id }) => id), ...guestCheckNames];
/** KPNG_IPVS_SCENARIOS selects others by a regular expression. */
const wanted = process.env.KPNG_IPVS_SCENARIOS;
const chosen = all.filter((name) => wanted !== undefined && new RegExp(wanted).test(name));
const emulated = [...selectedCases, ...(isEverything ? guestCheckNames : [])].filter(
  (name) => !tooSlowInQemu.includes(name),
);

describeGuest("kpng-ipvs", {
  program: "test/kernel/ipvs/guest-main.ts",
  siblings: ["test/kernel/ipvs/node-main.ts"],
  names: wanted !== undefined ? chosen : isEverything ? all : selectedCases,
  emulatedNames: wanted !== undefined ? chosen : emulated,
});
