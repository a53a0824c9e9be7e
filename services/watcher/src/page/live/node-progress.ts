import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { knownRevision, stateOf } from "../../inspect/rows/subscriber-row.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import type { Subscriber } from "../../stream/session/subscribers.ts";
import type { LiveNode, NodeState } from "./live-rows.ts";

/**
 * Time after which a node that has not applied a batch counts as behind, in milliseconds. During constant changes, each
 * node has a pending batch at nearly every moment; a page that showed it would change every row every second.
 */
const behindAfterMs = 1_000;

/** Row of a node, and the numbers from which its next row is computed. */
export interface NodeProgress {
  readonly row: LiveNode;
  /** Revision that it is known to have applied; for a client that never acknowledges, to have received. */
  readonly revision: number;
  /** When it was first seen without the newest revision, in milliseconds since 1970; 0 if it has it. */
  readonly sinceMs: number;
}

/**
 * Returns the progress of every node by name. `before` is the previous result. Pure; O(nodes + subscribers), a few
 * tenths of a microsecond each.
 *
 * `LiveState` calls it for each frame of the status page. Unlike `nodeTable` of the inspect API it counts no endpoints,
 * and a row stays equal while the node keeps up.
 */
export function nodeProgress(
  { nodes, revision }: Snapshot,
  open: Iterable<Subscriber>,
  before: ReadonlyMap<string, NodeProgress>,
  nowMs: number,
): Map<string, NodeProgress> {
  const streams = new Map<string, Subscriber[]>();
  const observers = new Map<string, number>();
  for (const name of nodes.keys()) streams.set(name, []);
  for (const subscriber of open) {
    const { kind, nodeName, isNode } = subscriber;
    if (kind !== "local" || nodeName === "") continue;
    if (!isNode) observers.set(nodeName, (observers.get(nodeName) ?? 0) + 1);
    else if (streams.get(nodeName)?.push(subscriber) === undefined) streams.set(nodeName, [subscriber]);
  }
  const progress = new Map<string, NodeProgress>();
  for (const [name, ofNode] of streams) {
    const node = nodes.get(name);
    const known = ofNode.length === 0 ? 0 : Math.min(...ofNode.map(knownRevision));
    const sinceMs = behindSince(ofNode, known, revision, before.get(name), nowMs);
    const worst = Math.max(...ofNode.map((one) => stateOf(one, revision)));
    const state = node === undefined ? "unknown" : stateName(worst, ofNode, nowMs - sinceMs);
    const isLate = state === "behind" || state === "failing";
    const row: LiveNode = {
      name,
      zone: node?.zone ?? "",
      state,
      sinceMs: isLate ? sinceMs : 0,
      revision: isLate ? known : 0,
      programs: programsOf(ofNode),
      streamCount: ofNode.length,
      observerCount: observers.get(name) ?? 0,
      error: ofNode.find(({ failure }) => failure !== undefined)?.failure?.error ?? "",
    };
    const old = before.get(name)?.row;
    progress.set(name, { row: old !== undefined && isSame(old, row) ? old : row, revision: known, sinceMs });
  }
  return progress;
}

function behindSince(
  streams: readonly Subscriber[],
  known: number,
  newest: number,
  before: NodeProgress | undefined,
  nowMs: number,
): number {
  if (streams.length === 0 || (known >= newest && newest > 0)) return 0;
  let sinceMs = Number.POSITIVE_INFINITY;
  for (const { unappliedSinceMs } of streams) sinceMs = Math.min(sinceMs, unappliedSinceMs ?? sinceMs);
  if (Number.isFinite(sinceMs)) return sinceMs;
  // It never acknowledges, or its first batch is not sent yet.
  return before !== undefined && before.sinceMs > 0 && before.revision === known ? before.sinceMs : nowMs;
}

function stateName(worst: number, streams: readonly Subscriber[], lagMs: number): NodeState {
  if (streams.length === 0) return "absent";
  if (worst === ApplyState.FAILING) return "failing";
  if (worst === ApplyState.BEHIND && lagMs >= behindAfterMs) return "behind";
  return streams.every(({ hasAcknowledged }) => hasAcknowledged) ? "current" : "received";
}

function programsOf(streams: readonly Subscriber[]): string {
  const [first, ...others] = streams;
  if (first === undefined) return "";
  if (others.length === 0) return first.program;
  return [...new Set(streams.map(({ program }) => program))].filter((one) => one !== "").join(", ");
}

function isSame(a: LiveNode, b: LiveNode): boolean {
  return (
    a.state === b.state &&
    a.sinceMs === b.sinceMs &&
    a.revision === b.revision &&
    a.zone === b.zone &&
    a.programs === b.programs &&
    a.streamCount === b.streamCount &&
    a.observerCount === b.observerCount &&
    a.error === b.error
  );
}
