import { bucketCount } from "@kpng/model/wire/digest.ts";
import { quantile } from "../proc.ts";
import { type Costs, type Event, type Outcome, simulateProcess } from "./process.ts";

/** A cluster, and the processes between its API server and its nodes. */
export interface Cluster {
  readonly nodes: number;
  readonly services: number;
  readonly endpoints: number;
  readonly watchers: number;
  /** Relays in all; 0 if the nodes follow the watchers themselves. */
  readonly relays: number;
}

/** What happens to a cluster; see `scenarios`. */
export interface Scenario {
  readonly name: string;
  readonly durationMs: number;
  /** Times of revisions, ascending. */
  readonly changesMs: readonly number[];
  /** Nodes that connect, in all, ascending by time. Each has missed so many changes; undefined if it holds nothing. */
  readonly connects: readonly { readonly atMs: number; readonly nodes: number; readonly missed?: number }[];
  /** True if one of the processes that serve nodes is away. */
  readonly isOneAway?: boolean;
}

/** Figures of one of the equal processes of a tier. */
interface TierLoad {
  /** Share of one core; at 1, rounds follow each other without a pause. */
  readonly cpu: number;
  readonly bytesPerSecond: number;
  readonly memoryBytes: number;
}

export interface Result {
  /** From a revision at the API server until the last node has it: median and 99th percentile of all revisions. */
  readonly lastNodeMs: { readonly p50: number; readonly p99: number };
  /** The longest wait of a node that connected; undefined if none did. */
  readonly connectMs: number | undefined;
  readonly watcher: TierLoad;
  readonly relay: TierLoad | undefined;
}

/** Share of the view that a node needs: all, or the buckets with what has changed. */
function shareOfView(missed: number | undefined): number {
  return missed === undefined ? 1 : 1 - (1 - 1 / bucketCount) ** missed;
}

/** Simulates one of the equal processes of each tier. Pure. */
export function simulate(costs: Costs, cluster: Cluster, scenario: Scenario): Result {
  const { nodes, endpoints, watchers, relays } = cluster;
  const { changesMs, connects, isOneAway = false } = scenario;
  const serving = (relays || watchers) - Number(isOneAway);
  const streams = Math.ceil(nodes / serving);
  const changes = changesMs.map((atMs): Event => ({ atMs, kind: "change" }));
  const connecting = connects.map(({ atMs, missed, nodes: count }, index): Event => {
    const { endpointMs, nodeMs, byteMs } = missed === undefined ? costs.view : costs.resume;
    const bytes = endpoints * costs.endpointBytes * shareOfView(missed);
    // Processes that already serve nodes have what these share.
    const sharedMs = index === 0 && missed === undefined ? endpoints * endpointMs : 0;
    return {
      atMs,
      kind: "connect",
      nodes: Math.ceil(count / serving),
      nodeMs: nodeMs + bytes * byteMs,
      bytes,
      sharedMs,
    };
  });
  const run = (of: Costs, count: number, ...events: readonly Event[]): Outcome => {
    const inOrder = [...events].sort((a, b) => a.atMs - b.atMs);
    return simulateProcess(of, endpoints, count, inOrder);
  };
  const loadOf = ({ busyMs, endMs, sentBytes }: Outcome, count: number): TierLoad => {
    const ms = Math.max(scenario.durationMs, endMs);
    const { process, endpoint, stream } = costs.memory;
    const memoryBytes = process + endpoints * endpoint + count * stream;
    return { cpu: busyMs / ms, bytesPerSecond: (sentBytes * 1_000) / ms, memoryBytes };
  };
  const resultOf = (delays: readonly number[], { connectMs }: Outcome) => ({
    lastNodeMs: { p50: quantile(delays, 0.5), p99: quantile(delays, 0.99) },
    connectMs: connectMs.length === 0 ? undefined : Math.max(...connectMs),
  });
  if (relays === 0) {
    const direct = run(costs, streams, ...changes, ...connecting);
    const delays = direct.changes.map(({ delayMs }) => delayMs);
    return { ...resultOf(delays, direct), watcher: loadOf(direct, streams), relay: undefined };
  }
  const relaysEach = Math.ceil(relays / watchers);
  const first = run(costs, relaysEach, ...changes);
  const arrivals = first.changes.map(({ atMs }): Event => ({ atMs, kind: "change" }));
  const relay = { ...costs, roundMs: costs.roundMs + costs.hopMs };
  const second = run(relay, streams, ...arrivals, ...connecting);
  const delays = second.changes.map(({ delayMs }, at) => delayMs + (first.changes[at]?.delayMs ?? 0));
  return { ...resultOf(delays, second), watcher: loadOf(first, relaysEach), relay: loadOf(second, streams) };
}
