import { createLog } from "@kpng/process/log.ts";
import { readEbpfSettings } from "../backend.ts";
import { Datapath } from "../datapath/datapath.ts";

// Loads everything into the kernel and attaches nothing: `node probe.ts CGROUP`. Prints why that is not
// possible; nothing if it is.

const [cgroup] = process.argv.slice(2);
try {
  const settings = readEbpfSettings({ cgroup }, "probe");
  Datapath.open({ ...settings, log: createLog("off") });
} catch (error) {
  process.stdout.write(`${error instanceof Error ? error.message : String(error)}\n`);
}
