import { ackIntervalFor } from "../../../services/watcher/src/stream/session/acknowledgement.ts";

/** What one process that serves streams (a watcher or relay) pays, in milliseconds of one core and in bytes. */
export interface Costs {
  /** A round; each of its changes, for all streams; each stream until it has its batch; its acknowledgement. */
  readonly roundMs: number;
  readonly changeMs: number;
  /** What the cluster's size adds to a change, for each endpoint. */
  readonly changeEndpointMs: number;
  readonly streamMs: number;
  readonly ackMs: number;
  /** A batch of one change; each further change in it. */
  readonly batchBytes: number;
  readonly changeBytes: number;
  /** Nodes that connect: what they share, for each endpoint of the cluster; each node; each of its bytes. */
  readonly view: ConnectCosts;
  readonly resume: ConnectCosts;
  /** Bytes of a whole view, for each endpoint. */
  readonly endpointBytes: number;
  /** What a relay pays for a round in addition: it decodes and stores the changes, and acknowledges them. */
  readonly hopMs: number;
  /** Memory of a process: without data, for each endpoint, and for each stream. */
  readonly memory: { readonly process: number; readonly endpoint: number; readonly stream: number };
}

export interface ConnectCosts {
  readonly endpointMs: number;
  readonly nodeMs: number;
  readonly byteMs: number;
}

/** What happens at a process, in order of time. */
export type Event =
  | { readonly atMs: number; readonly kind: "change" }
  | ({ readonly atMs: number; readonly kind: "connect" } & Connecting);

/** Nodes that connect together: what they share, what each costs, and what each receives. */
interface Connecting {
  readonly nodes: number;
  readonly sharedMs: number;
  readonly nodeMs: number;
  readonly bytes: number;
}

export interface Outcome {
  /** For each change, when the last stream had it, and how long that took. */
  readonly changes: readonly { readonly atMs: number; readonly delayMs: number }[];
  /** For each node that connected, how long it waited for its last byte. */
  readonly connectMs: readonly number[];
  /** CPU time, and when the last work ended. */
  readonly busyMs: number;
  readonly endMs: number;
  readonly sentBytes: number;
}

/** Shares of the two lanes of `Scheduler`, and its slices. */
const shares = { settled: 2 / 3, first: 1 / 3 };
const sliceMs = 10;

/**
 * Simulates a process with one thread, as `Rounds` and `Scheduler` share it: changes that arrive during a round are sent
 * together in the next one, and while nodes connect, rounds get two thirds of the time. Pure.
 */
export function simulateProcess(costs: Costs, endpoints: number, streams: number, events: readonly Event[]): Outcome {
  const changeMs = costs.changeMs + endpoints * costs.changeEndpointMs;
  const changes: { atMs: number; delayMs: number }[] = [];
  const connectMs: number[] = [];
  const connecting: { readonly event: Connecting & { readonly atMs: number }; left: number; sharedMs: number }[] = [];
  const charged = { settled: 0, first: 0 };
  let waiting: number[] = [];
  let [nowMs, nextAckMs, busyMs, sentBytes, next] = [0, 0, 0, 0, 0];
  const work = (lane: keyof typeof shares, ms: number): void => {
    nowMs += ms;
    busyMs += ms;
    charged[lane] += ms / shares[lane];
  };
  for (;;) {
    for (let event = events[next]; event !== undefined && event.atMs <= nowMs; event = events[++next]) {
      // A lane does not save up its share while it is idle.
      if (event.kind === "change") {
        if (waiting.length === 0) charged.settled = Math.max(charged.settled, charged.first);
        waiting.push(event.atMs);
      } else {
        if (connecting.length === 0) charged.first = Math.max(charged.first, charged.settled);
        connecting.push({ event, left: event.nodes, sharedMs: event.sharedMs });
      }
    }
    const [first] = connecting;
    if (waiting.length > 0 && (first === undefined || charged.settled <= charged.first)) {
      const furtherBytes = (waiting.length - 1) * costs.changeBytes;
      work(
        "settled",
        costs.roundMs + waiting.length * changeMs + streams * (costs.streamMs + furtherBytes * costs.view.byteMs),
      );
      sentBytes += streams * (costs.batchBytes + furtherBytes);
      for (const atMs of waiting) changes.push({ atMs: nowMs, delayMs: nowMs - atMs });
      waiting = [];
      // A stream acknowledges at intervals.
      if (nowMs < nextAckMs) continue;
      nextAckMs = nowMs + ackIntervalFor(streams);
      work("settled", streams * costs.ackMs);
    } else if (first !== undefined) {
      const { event, sharedMs } = first;
      if (sharedMs > 0) {
        work("first", Math.min(sharedMs, sliceMs));
        first.sharedMs -= sliceMs;
        continue;
      }
      work("first", event.nodeMs);
      sentBytes += event.bytes;
      connectMs.push(nowMs - event.atMs);
      first.left -= 1;
      if (first.left <= 0) connecting.shift();
    } else {
      const event = events[next];
      if (event === undefined) return { changes, connectMs, busyMs, endMs: nowMs, sentBytes };
      nowMs = event.atMs;
    }
  }
}
