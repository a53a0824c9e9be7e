import { createLog } from "@kpng/process/log.ts";
import { readEbpfSettings } from "../backend.ts";
import { Datapath } from "../datapath/datapath.ts";

// Loads everything into the kernel and attaches nothing: `node probe.ts BPF-FOLDER CGROUP`. Prints why that is not
// possible; nothing if it is.

const [bpfFolder, cgroup] = process.argv.slice(2);
try {
  const settings = readEbpfSettings({ bpfFolder, cgroup, instanceName: "kpng-probe" }, "");
  Datapath.open({ ...settings, log: createLog("off") });
} catch (error) {
  process.stdout.write(`${error instanceof Error ? error.message : String(error)}\n`);
}
