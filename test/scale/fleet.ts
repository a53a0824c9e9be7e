import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { runFleet, SimulatedNode } from "@kpng/cli/fleet/simulated-node.ts";
import { connectHttp2 } from "@kpng/process/connection/dial.ts";
import { BatchLog, type MadeChange } from "./batch-log.ts";
import { answerCalls } from "./calls.ts";
import { monotonicMs } from "./proc.ts";

/** Process with the nodes of `kpng simulate nodes`, measured together by its parent process. */
interface FleetOptions {
  /** Addresses of the watchers or relays, among which the nodes are divided. */
  readonly addresses: readonly string[];
  readonly streams: number;
  /** Number of the node of the first stream: `node-7` for 7. */
  readonly firstNode: number;
  /** Request our own fields, as the kit does. False makes the request of a Go client. */
  readonly isExtended: boolean;
  /** Path of a file with WatchReq.HeldDigests of each stream, one after the other. Default: they hold nothing. */
  readonly heldDigests?: string | undefined;
}

/** Length of WatchReq.HeldDigests, in bytes. */
const heldBytes = 8_192;

let nodes: readonly SimulatedNode[] = [];
/** Streams lost while all nodes connected: a busy watcher may ask a node to come back later. */
let lostWhileOpening = 0;
const log = new BatchLog();
let wait: { readonly left: Set<SimulatedNode>; isMet(node: SimulatedNode): boolean; done(): void } | undefined;

function makeNodes({ addresses, streams, firstNode, isExtended, heldDigests }: FleetOptions): readonly SimulatedNode[] {
  const held = heldDigests === undefined ? undefined : readFileSync(heldDigests);
  const ofIndex = (index: number): SimulatedNode =>
    new SimulatedNode({
      name: `node-${firstNode + index}`,
      connect: (windowBytes) => connectHttp2({ api: addresses[index % addresses.length] ?? "" }, windowBytes),
      isExtended,
      random: Math.random,
      heldDigests: held?.subarray(index * heldBytes, (index + 1) * heldBytes),
      onBatch: (node) => {
        log.add(index, node.revision, monotonicMs());
        if (wait?.isMet(node) && wait.left.delete(node) && wait.left.size === 0) wait.done();
      },
    });
  return Array.from({ length: streams }, (_, index) => ofIndex(index));
}

/** Resolves when all nodes meet a condition; rejects after `timeoutMs`. */
function allMeet(isMet: (node: SimulatedNode) => boolean, timeoutMs: number): Promise<void> {
  const left = new Set(nodes.filter((node) => !isMet(node)));
  if (left.size === 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const timeout = setTimeout(() => {
      const { failure = "no answer" } = [...left][0] ?? {};
      reject(new Error(`after ${timeoutMs} ms ${left.size} of ${nodes.length} nodes still wait: ${failure}`));
    }, timeoutMs);
    const done = (): void => {
      clearTimeout(timeout);
      resolve();
    };
    wait = { left, isMet, done };
  });
}

const total = (value: (node: SimulatedNode) => number): number => nodes.reduce((sum, node) => sum + value(node), 0);
const receivedBytes = (): number => total((node) => node.receivedBytes);
const lostStreams = (): number => total(({ lostCount }) => lostCount);

const handlers = {
  /** Starts the nodes; returns the time from the first connection until the last node had its first batch. */
  async open({ options, timeoutMs }: { readonly options: FleetOptions; readonly timeoutMs: number }) {
    nodes = makeNodes(options);
    const startedAtMs = monotonicMs();
    const synced = allMeet(({ isSynced }) => isSynced, timeoutMs);
    // The nodes run until this process ends.
    void runFleet(nodes, new AbortController().signal);
    await synced;
    lostWhileOpening = lostStreams();
    return { elapsedMs: monotonicMs() - startedAtMs, receivedBytes: receivedBytes() };
  },

  /** Starts a measurement: clears the log of batches. */
  mark(_: Record<never, never>) {
    log.clear();
    return { receivedBytes: receivedBytes() };
  },

  /** Resolves when all nodes have received `revision`. */
  reachedRevision({ revision, timeoutMs }: { readonly revision: number; readonly timeoutMs: number }) {
    return allMeet((node) => node.revision >= revision, timeoutMs);
  },

  /** Resolves when no batch has arrived for `quietMs`; rejects if that does not happen within `timeoutMs`. */
  async quiet({ quietMs, timeoutMs }: { readonly quietMs: number; readonly timeoutMs: number }) {
    const untilMs = monotonicMs() + timeoutMs;
    for (let length = -1; length !== log.length; ) {
      if (monotonicMs() > untilMs) throw new Error(`batches still arrive after ${timeoutMs} ms`);
      length = log.length;
      await sleep(quietMs);
    }
  },

  /** `sinceRevision` is the revision at the start of the measurement. */
  collect({ changes, sinceRevision }: { readonly changes: readonly MadeChange[]; readonly sinceRevision: number }) {
    if (lostStreams() > lostWhileOpening) throw new Error(`${lostStreams() - lostWhileOpening} streams were lost`);
    return { latencies: log.latencies(changes, sinceRevision), receivedBytes: receivedBytes() };
  },
};

export type FleetHandlers = typeof handlers;

answerCalls(handlers);
