import { afterAll, beforeAll, vi } from "vitest";
import { findBinaries } from "./binaries.ts";
import { type Cluster, type ClusterPrograms, startCluster } from "./cluster.ts";
import { describeWhere } from "./describe-where.ts";

interface Options {
  /** Default true; see {@link ClusterPrograms}. */
  readonly hasControllers?: boolean | undefined;
  /** Reason why the tests cannot run, besides missing programs of the control plane. */
  readonly whyNot?: string | undefined;
}

/**
 * Runs tests against one real control plane, which starts before the first test and stops after the last one; see
 * {@link describeWhere} if its programs are not available.
 */
export async function describeCluster(
  name: string,
  { whyNot, hasControllers = true }: Options,
  tests: (cluster: () => Cluster) => void,
): Promise<void> {
  // An API server that was killed takes long to come back on a busy machine.
  vi.setConfig({ testTimeout: 180_000 });
  const needed = ["etcd", "kube-apiserver"] as const;
  const binaries = await findBinaries(hasControllers ? [...needed, "kube-controller-manager"] : needed);
  describeWhere(name, whyNot ?? (binaries.kind === "missing" ? binaries.reason : undefined), () => {
    let cluster: Cluster | undefined;
    beforeAll(async () => {
      if (binaries.kind === "found") cluster = await startCluster(binaries.paths);
      // Longer than the start of the cluster waits, so that its own error is shown.
    }, 240_000);
    afterAll(async () => {
      await cluster?.stop();
    });
    tests(() => {
      if (cluster === undefined) throw new Error("the cluster has not started");
      return cluster;
    });
  });
}
