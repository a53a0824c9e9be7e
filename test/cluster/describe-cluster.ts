import { afterAll, beforeAll } from "vitest";
import { findBinaries, type Program } from "./binaries.ts";
import { type Cluster, type ClusterOptions, startCluster } from "./cluster.ts";
import { describeWhere } from "./describe-where.ts";

interface Options extends Omit<ClusterOptions, "paths"> {
  /** Reason why the tests cannot run, besides missing programs of the control plane. */
  readonly whyNot?: string | undefined;
}

/**
 * Runs tests against one real control plane, which starts before the first test and stops after the last one; see
 * {@link describeWhere} if its programs are not available.
 */
export async function describeCluster(
  name: string,
  { whyNot, ...options }: Options,
  tests: (cluster: () => Cluster) => void,
): Promise<void> {
  const needed: readonly Program[] = [
    "etcd",
    "kube-apiserver",
    ...((options.hasControllers ?? true) ? (["kube-controller-manager"] as const) : []),
  ];
  const binaries = await findBinaries(needed);
  describeWhere(name, whyNot ?? (binaries.kind === "missing" ? binaries.reason : undefined), () => {
    let cluster: Cluster | undefined;
    beforeAll(async () => {
      cluster = await startCluster({ ...options, paths: binaries.kind === "found" ? binaries.paths : {} });
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
