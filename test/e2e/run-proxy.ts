import { type Cluster, startCluster } from "./cluster/cluster.ts";
import type { ImageSource } from "./cluster/image-store.ts";
import type { Options, ProxyName } from "./options.ts";
import type { ProgramPaths } from "./program-paths.ts";
import { type InstallationTimes, installProxy } from "./proxy/install.ts";
import { needsGuest } from "./requirements.ts";
import type { TestResult } from "./suite/report.ts";
import { runTests } from "./suite/run-tests.ts";

/** One proxy, and what a cluster with it is made of. */
export interface ProxyRun {
  readonly proxy: ProxyName;
  readonly paths: ProgramPaths;
  readonly images: ImageSource;
  readonly options: Options;
}

/** Runs Kubernetes' tests with one proxy on a new cluster. */
export function runProxy(run: ProxyRun): Promise<readonly TestResult[]> {
  const { selection } = run.options;
  // They mostly wait. Everything takes longer in a guest, and more tests at the same time would reach their time
  // limits.
  const testsPerCore = needsGuest(run.proxy) ? 2 : 4;
  return withCluster(run, (cluster) => runTests(cluster, run.paths, { selection, testsPerCore }));
}

/** Installs a proxy, and returns how long it took until Services worked. */
type Install = (proxy: ProxyName, cluster: Cluster, paths: ProgramPaths) => Promise<InstallationTimes>;

/** Runs `work` on a new cluster with the proxy installed. */
export async function withCluster<T>(
  { proxy, paths, images, options: { families, nodeCount, keep } }: ProxyRun,
  work: (cluster: Cluster) => Promise<T>,
  install: Install = installProxy,
): Promise<T> {
  const startedMs = performance.now();
  const cluster = await startCluster({
    paths,
    images,
    families,
    nodeCount,
    keepsLogs: keep,
    inGuest: needsGuest(proxy),
  });
  try {
    const startMs = performance.now() - startedMs;
    process.stderr.write(
      `e2e: ${proxy}: ${nodeCount} nodes are ready after ${inSeconds(startMs)}; files in ${cluster.folder}\n`,
    );
    const { nodesMs, dnsMs } = await install(proxy, cluster, paths);
    const times = `Services ${inSeconds(nodesMs)}, DNS ${inSeconds(dnsMs)}`;
    process.stderr.write(`e2e: ${proxy}: from the beginning of the installation until they worked: ${times}\n`);
    return await work(cluster);
  } finally {
    await cluster.stop();
  }
}

function inSeconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}
