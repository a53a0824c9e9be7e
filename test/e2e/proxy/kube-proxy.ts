import { join } from "node:path";
import { hostAndPort } from "../cluster/addresses.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { Daemon } from "../cluster/daemon.ts";

/** Port of kube-proxy's health check, which a test of Kubernetes knows. */
const healthPort = 10256;

/** Starts kube-proxy on every node of a cluster, for comparison. */
export function startKubeProxy(cluster: Cluster, path: string, mode: "iptables" | "nftables" | "ipvs"): void {
  const { laboratory, addresses, folder, controlPlane } = cluster;
  const any = addresses.families[0] === "ipv4" ? "0.0.0.0" : "::";
  const daemons = addresses.nodes.map(({ name }) => {
    const command = [
      path,
      `--kubeconfig=${controlPlane.kubeconfig}`,
      `--hostname-override=${name}`,
      `--cluster-cidr=${addresses.podCIDRs.join(",")}`,
      `--proxy-mode=${mode}`,
      // The size of the conntrack table belongs to the machine.
      "--conntrack-max-per-core=0",
      `--healthz-bind-address=${hostAndPort(any, healthPort)}`,
      `--metrics-bind-address=${hostAndPort(any, 10249)}`,
    ];
    return new Daemon({ name, laboratory, namespace: name, command, logFile: join(folder, name, "kube-proxy.log") });
  });
  for (const daemon of daemons) daemon.start();
}
