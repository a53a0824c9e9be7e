import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { GuestResults } from "../ipvs/guest-results.ts";
import type { CellRun } from "./describe-faults.ts";
import type { FaultCell } from "./fault-subject.ts";

// Runs cells of kpng-ipvs inside the guest, each as a machine of its own. KPNG_FAULT_CELLS has them by name, as JSON.

const cells: Readonly<Record<string, FaultCell>> = JSON.parse(process.env.KPNG_FAULT_CELLS ?? "{}");
const program = fileURLToPath(new URL("run-cells.ts", import.meta.url));
const results = new GuestResults(process.argv);
for (const [name, cell] of Object.entries(cells)) {
  await results.report(name, async () => {
    const words = ["--net", "--mount", process.execPath, program, "ipvs", JSON.stringify([cell])];
    const { result }: CellRun = JSON.parse(execFileSync("unshare", words, { encoding: "utf8", stdio: "pipe" }));
    const isRight = result.reached === cell.wanted && result.isHealthy === cell.isHealthy;
    return isRight ? [] : [`expected ${JSON.stringify(cell)}, got ${JSON.stringify(result)}`];
  });
}
process.exit(0);
