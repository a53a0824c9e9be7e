import { hostAndPort } from "../cluster/addresses.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { runOn } from "./processes.ts";

/** Port of kube-proxy's health check, which a test of Kubernetes knows. */
const healthPort = 10256;

/** Starts kube-proxy on every node of a cluster, for comparison. */
export async function startKubeProxy(
  { nodes, addresses, controlPlane }: Cluster,
  path: string,
  mode: "iptables" | "nftables" | "ipvs",
): Promise<void> {
  const any = addresses.families[0] === "ipv4" ? "0.0.0.0" : "::";
  for (const node of nodes) {
    const command = [
      path,
      `--kubeconfig=${controlPlane.kubeconfig}`,
      `--hostname-override=${node.name}`,
      `--cluster-cidr=${addresses.podCIDRs.join(",")}`,
      `--proxy-mode=${mode}`,
      // The size of the conntrack table belongs to the machine.
      "--conntrack-max-per-core=0",
      `--healthz-bind-address=${hostAndPort(any, healthPort)}`,
      `--metrics-bind-address=${hostAndPort(any, 10249)}`,
    ];
    await runOn(node, ["sh", "-c", '"$0" "$@" >/var/log/kube-proxy.log 2>&1 </dev/null &', ...command]);
  }
}
