import { hostAndPort } from "../cluster/addresses.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { runOn } from "./processes.ts";

export type KubeProxyMode = "iptables" | "nftables" | "ipvs";

/** Port of kube-proxy's health check, which a test of Kubernetes knows. */
const healthPort = 10256;

/** Starts kube-proxy on every node of a cluster, for comparison. */
export async function startKubeProxy(cluster: Cluster, path: string, mode: KubeProxyMode): Promise<void> {
  for (const node of cluster.nodes) {
    const command = kubeProxyCommand(cluster, path, mode, node.name);
    await runOn(node, ["sh", "-c", '"$0" "$@" >/var/log/kube-proxy.log 2>&1 </dev/null &', ...command]);
  }
}

/** Returns the command line of kube-proxy on a node. */
export function kubeProxyCommand(
  { addresses, controlPlane }: Cluster,
  path: string,
  mode: KubeProxyMode,
  nodeName: string,
): readonly string[] {
  const any = addresses.families[0] === "ipv4" ? "0.0.0.0" : "::";
  return [
    path,
    `--kubeconfig=${controlPlane.kubeconfig}`,
    `--hostname-override=${nodeName}`,
    `--cluster-cidr=${addresses.podCIDRs.join(",")}`,
    `--proxy-mode=${mode}`,
    // The size of the conntrack table belongs to the machine.
    "--conntrack-max-per-core=0",
    `--healthz-bind-address=${hostAndPort(any, healthPort)}`,
    `--metrics-bind-address=${hostAndPort(any, 10249)}`,
  ];
}
