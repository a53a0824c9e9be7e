import { afterAll, beforeAll, describe, test } from "vitest";
import { findBinaries, type Program } from "./binaries.ts";
import { type Cluster, type ClusterOptions, startCluster } from "./cluster.ts";

/**
 * Runs tests against one real control plane, which starts before the first test and stops after the last one.
 *
 * If its programs are not available, a single skipped test replaces them and prints the reason; in CI it fails.
 */
export async function describeCluster(
  name: string,
  options: Omit<ClusterOptions, "paths">,
  tests: (cluster: () => Cluster) => void,
): Promise<void> {
  const needed: readonly Program[] = [
    "etcd",
    "kube-apiserver",
    ...((options.hasControllers ?? true) ? (["kube-controller-manager"] as const) : []),
  ];
  const binaries = await findBinaries(needed);
  if (binaries.kind === "missing") {
    const { reason } = binaries;
    if (process.env.CI !== "true") {
      // Vitest's summary only counts skipped tests.
      process.stderr.write(`test/cluster: skipped "${name}": ${reason}\n`);
      return test.skip(`${name} (skipped: ${reason})`);
    }
    return test(name, () => {
      throw new Error(reason);
    });
  }
  describe(name, () => {
    let cluster: Cluster | undefined;
    beforeAll(async () => {
      cluster = await startCluster({ ...options, paths: binaries.paths });
    });
    afterAll(async () => {
      await cluster?.stop();
    });
    tests(() => {
      if (cluster === undefined) throw new Error("the cluster has not started");
      return cluster;
    });
  });
}
