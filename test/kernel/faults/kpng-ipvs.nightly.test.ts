import { describeGuest } from "../ipvs/describe-guest.ts";
import { faultRows } from "./describe-faults.ts";

/** Only those without a watcher: the kit treats its other faults in the same way for all backends. */
const cells = faultRows("ipvs").flatMap((row) => row.cells.filter(({ watcher }) => watcher === "away"));
const byName = Object.fromEntries(
  cells.map((cell) => [`${cell.phase}, rules ${cell.rules}: "${cell.wanted}" answers, and health is true`, cell]),
);

describeGuest("kpng-ipvs without a watcher: when, and with which rules", {
  program: "test/kernel/faults/guest-main.ts",
  siblings: ["test/kernel/faults/run-cells.ts"],
  names: Object.keys(byName),
  environment: { KPNG_FAULT_CELLS: JSON.stringify(byName) },
});
