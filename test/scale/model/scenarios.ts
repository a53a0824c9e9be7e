import { makeRandom } from "@kpng/process/random.ts";
import type { Cluster, Scenario } from "./tiers.ts";

/** Pods that are replaced in an hour of an ordinary day, as a share of all pods. */
const hourlyChurn = 0.01;

/**
 * Revisions that the replacement of one pod causes: its slice gets the new pod, which becomes ready; the old one
 * terminates, and is removed.
 */
const revisionsPerPod = 4;

/** Slices per second that the EndpointSlice controller writes while a zone fails (assumed). */
const slicesPerSecond = 500;

/** Revisions per second on an ordinary day. */
export function steadyRate({ endpoints }: Cluster): number {
  return (endpoints * hourlyChurn * revisionsPerPod) / 3_600;
}

/** Returns what the model is asked about a cluster. */
export function scenarios(cluster: Cluster): readonly Scenario[] {
  const { nodes, services, watchers, relays } = cluster;
  const serving = relays || watchers;
  const rate = steadyRate(cluster);
  // Long enough for percentiles.
  const steadyMs = Math.max(60_000, 200_000 / rate);
  const steady = atRandom(rate, 60_000);
  const zoneMs = (services / slicesPerSecond) * 1_000;
  const minute = { durationMs: 60_000, changesMs: steady, connects: [] };
  return [
    { ...minute, name: "steady: 1 % of the pods an hour", durationMs: steadyMs, changesMs: atRandom(rate, steadyMs) },
    {
      ...minute,
      name: "rollouts: 5 000 pods in a minute",
      changesMs: atRandom((5_000 * revisionsPerPod) / 60, 60_000),
    },
    {
      name: "a zone fails: a slice of each Service",
      durationMs: zoneMs,
      changesMs: atRandom(slicesPerSecond, zoneMs),
      connects: [],
    },
    {
      ...minute,
      name: "a watcher or relay that serves nodes is lost",
      connects: spread(nodes / serving, 1_000, 10),
      isOneAway: true,
    },
    { ...minute, name: "rolling upgrade: a tenth of the nodes", connects: spread(nodes / 10, 20_000, 100) },
    { ...minute, name: "all nodes connect, and hold nothing", connects: spread(nodes, 1_000) },
    { ...minute, name: "the API server was away for a minute", changesMs: steady.map(() => 0) },
  ];
}

/** Returns the times of Poisson events in milliseconds, the same at each call. */
function atRandom(perSecond: number, durationMs: number): number[] {
  const times: number[] = [];
  const random = makeRandom(1);
  for (let atMs = 0; ; ) {
    atMs -= (Math.log(1 - random()) * 1_000) / perSecond;
    if (atMs >= durationMs) return times;
    times.push(atMs);
  }
}

/** Nodes that connect evenly over a time, and have missed so many changes. */
function spread(nodes: number, durationMs: number, missed?: number): Scenario["connects"] {
  const steps = 20;
  return Array.from({ length: steps }, (_, step) => {
    return { atMs: (step * durationMs) / steps, nodes: nodes / steps, ...(missed === undefined ? {} : { missed }) };
  });
}
