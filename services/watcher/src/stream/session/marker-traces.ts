import type { Batch } from "./subscription.ts";

/**
 * Returns the traces of the revisions that a batch covers. They are part of the sync marker. The first batch of a
 * stream may deliver changes that the node missed while it was disconnected, so it has the traces of the last 30 s.
 *
 * The nodes that may record their part are distributed over `openCount` streams.
 *
 * `syncMarker` calls it. Separate because only traced changes need it.
 */
export function markerTraces(
  { snapshot, before }: Pick<Batch, "snapshot" | "before">,
  openCount: number,
  nowMs: number,
): MarkerTraces {
  if (snapshot.traces.length === 0) return noTraces;
  const traced = snapshot.traces
    .filter(({ revision, storedAtMs }) =>
      before === undefined ? nowMs - storedAtMs < recentMs : revision > before.revision,
    )
    .reverse();
  const [newest] = traced;
  if (newest === undefined) return noTraces;
  return {
    traceparents: traced.map(({ traceparent }) => traceparent),
    tracedNodes: newest.nodes / Math.max(1, openCount),
  };
}

/** Maximum age of a change that counts as the cause of a first batch, in milliseconds. */
const recentMs = 30_000;

/** The trace fields of a sync marker; see EmptyOp. */
export interface MarkerTraces {
  /** Newest first; empty if no change of the batch is traced. */
  readonly traceparents: readonly string[];
  readonly tracedNodes: number;
}

const noTraces: MarkerTraces = { traceparents: [], tracedNodes: 0 };
