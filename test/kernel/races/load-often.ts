// Loads the programs of kpng-ebpf 30 times: `node load-often.ts BPF-FOLDER CGROUP`, in a namespace of the laboratory.
// `ebpf-races.nightly.test.ts` runs it with signals that interrupt it.

import { readEbpfSettings } from "@kpng/backend-ebpf/backend.ts";
import { Datapath } from "@kpng/backend-ebpf/datapath/datapath.ts";
import { createLog } from "@kpng/process/log.ts";

const [bpfFolder = "", cgroup = ""] = process.argv.slice(2);
const sizes = { maxFrontends: 64, maxEndpoints: 64 };
const settings = readEbpfSettings({ bpfFolder, cgroup, instanceName: "kpng-often", ...sizes }, "");
for (let count = 0; count < 30; count++) Datapath.open({ ...settings, log: createLog("off") }, ["v4"]);
process.stdout.write("loaded");
