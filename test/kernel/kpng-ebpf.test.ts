import { ownProxies } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { describeProxy } from "./describe-proxy.ts";
import { isEverything } from "./selection.ts";

const { ebpf } = ownProxies;
const all = {
  ...ebpf,
  command: [...ebpf.command, "--sockets", "all"],
  exceptions: "services/backend-ebpf/packets-sockets-all.exceptions",
};

describeBpf("BPF", () => {
  describeProxy({ name: "kpng-ebpf", start: () => ({ proxy: ebpf }) });
  if (isEverything) describeProxy({ name: "kpng-ebpf --sockets all", start: () => ({ proxy: all }) });
});
