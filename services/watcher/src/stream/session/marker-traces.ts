import type { Batch } from "./subscription.ts";

/** How long a change may be the reason for what the first batch of a stream brings, in milliseconds. */
const recentMs = 30_000;

/** What a marker says of the traces of its batch; see EmptyOp. */
export interface MarkerTraces {
  /** Newest first; empty if none of the changes is traced. */
  readonly traceparents: readonly string[];
  readonly tracedNodes: number;
}

const none: MarkerTraces = { traceparents: [], tracedNodes: 0 };

/**
 * Returns the traces of the revisions that a batch leads through. A stream that begins may catch up on what it missed, so
 * its first batch has those of the last 30 s.
 *
 * `openCount` is the number of streams among which the nodes that may record their part are shared out.
 */
export function markerTraces(
  { snapshot, before }: Pick<Batch, "snapshot" | "before">,
  openCount: number,
  nowMs: number,
): MarkerTraces {
  if (snapshot.traces.length === 0) return none;
  const traced = snapshot.traces
    .filter(({ revision, storedAtMs }) =>
      before === undefined ? nowMs - storedAtMs < recentMs : revision > before.revision,
    )
    .reverse();
  const [newest] = traced;
  if (newest === undefined) return none;
  return {
    traceparents: traced.map(({ traceparent }) => traceparent),
    tracedNodes: newest.nodes / Math.max(1, openCount),
  };
}
