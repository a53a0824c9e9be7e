import { join } from "node:path";
import { findBinaries } from "../../cluster/binaries.ts";
import { type Cluster, startCluster } from "../../cluster/cluster.ts";
import { fillWithServices, type IptablesShape } from "../iptables-cluster.ts";

/** A real API server with Services, on which a benchmark runs proxies. */
export interface BenchCluster {
  readonly cluster: Cluster;
  readonly shape: IptablesShape;
  /** Unix socket for a watcher of the cluster; `startWatcher` starts one. */
  readonly socket: string;
  /** Program of the real kube-proxy. */
  readonly kubeProxy: string;
}

/**
 * Runs `measure` with a new cluster for each number of Services, e.g. "1000,5000", and then ends the process; ends it
 * with exit status 1 if a binary of Kubernetes is missing. The benchmarks `iptables`, `nft` and `nft-patch`
 * begin with it.
 */
export async function onClusters(
  sizes: string,
  { ports = 2, endpoints = 10 }: Partial<Omit<IptablesShape, "services">>,
  measure: (bench: BenchCluster) => Promise<void>,
): Promise<never> {
  const found = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
  if (found.kind !== "found") {
    process.stdout.write(`cannot run: ${found.reason}\n`);
    process.exit(1);
  }
  const kubeProxy = found.paths["kube-proxy"] ?? "";
  for (const services of sizes.split(",").map(Number)) {
    const shape = { services, ports, endpoints };
    const cluster = await startCluster({ paths: found.paths, hasControllers: false });
    try {
      await fillWithServices(cluster.api, shape);
      await measure({ cluster, shape, socket: join(cluster.folder, "watcher.sock"), kubeProxy });
    } finally {
      await cluster.stop();
    }
  }
  process.exit();
}
