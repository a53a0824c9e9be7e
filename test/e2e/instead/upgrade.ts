import type { Cluster } from "../cluster/cluster.ts";
import { valuesOf } from "../proxy/install.ts";
import type { Installation } from "../proxy/installation.ts";
import { Probe, timed } from "./probe.ts";

/** New connections of all nodes together, in each second. */
const connectionsPerSecond = 50;

/**
 * Upgrades an installed version to the other one and rolls back, while new connections are opened from every node.
 * Prints how long each took, until all pods were ready.
 *
 * Errors: pods that are not ready within three minutes, or connections that failed.
 */
export async function upgradeAndRollBack(cluster: Cluster, former: Installation, next: Installation): Promise<void> {
  const { kubectl, nodes } = cluster;
  const probe = await Probe.create(cluster, "probe");
  const end = new AbortController();
  const load = probe.load(end.signal, Math.ceil(connectionsPerSecond / nodes.length));
  load.catch(() => undefined);
  const change = async (what: string, to: Installation): Promise<void> => {
    const took = await timed(async () => {
      await to.apply(cluster, valuesOf(cluster));
      for (const name of ["deployment/kpng-watcher", `daemonset/kpng-${to.backend}`])
        await kubectl.runInShell(`kubectl --namespace kube-system rollout status ${name} --timeout 3m`);
    });
    process.stdout.write(`${what}: ${took}\n`);
  };
  try {
    await change("upgraded", next);
    await change("rolled back", former);
    await Probe.create(cluster, "after");
  } finally {
    end.abort();
  }
  process.stdout.write(`in the meantime: ${await load}\n`);
}
