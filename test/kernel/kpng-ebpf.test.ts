import { isEverything } from "../scenario/selection.ts";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBackend } from "./describe-backend.ts";
import { describeBpf } from "./describe-bpf.ts";

describeBpf("BPF", () => {
  describeBackend({ name: "kpng-ebpf", start: kpngEbpf });
  if (!isEverything) return;
  const start: typeof kpngEbpf = (world) => kpngEbpf(world, { args: ["--sockets", "all"] });
  describeBackend({ name: "kpng-ebpf --sockets all", start });
});
