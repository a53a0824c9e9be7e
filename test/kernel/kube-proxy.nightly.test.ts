import { packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { type KubeProxyMode, startKubeProxyCluster, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeProxy } from "./describe-proxy.ts";

const whyNot = await whyNoKubeProxy();
/** No watcher of kpng serves the states; and what its cleanup leaves is not ours to judge. */
const cases = packetCases.map(({ id }) => id).filter((id) => !["continuity/watcher", "cleanup"].includes(id));

// The oracle: the expected results of scenarios are those of the real kube-proxy in iptables mode, and their deviations
// those of nftables mode.
for (const mode of ["iptables", "nftables"] as const) {
  describeProxy({ name: `kube-proxy in ${mode} mode`, whyNot, start: () => judged(mode), cases });
}

async function judged(mode: KubeProxyMode) {
  const { cluster, kubeconfig, proxy } = await startKubeProxyCluster(mode);
  return { proxy, options: ["--kubeconfig", kubeconfig], stop: () => cluster.stop() };
}
