import { describeBpf } from "../describe-bpf.ts";
import { describeFaults } from "./describe-faults.ts";

describeBpf("BPF", () => describeFaults("ebpf"));
