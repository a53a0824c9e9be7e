import type { Batch } from "./subscription.ts";

/**
 * Returns the traces of the revisions that a batch covers. They are part of the sync marker, the message that ends each
 * batch (EmptyOp). The first batch of a stream may deliver changes that the node missed while it was disconnected, so
 * it has the traces of the last 30 s.
 *
 * Not every node records its part of a trace: a change that reaches thousands of nodes would make as many spans. Each
 * trace has a wanted number of nodes; divided by `openCount`, the number of open streams, it is the share by which
 * each node decides for itself.
 *
 * `syncMarker` calls it and adds all other fields. Separate because this file alone decides which traces a marker names
 * and how many nodes record them.
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

interface MarkerTraces {
  /** Newest first; empty if no change of the batch is traced. */
  readonly traceparents: readonly string[];
  /** Share of the nodes that record their part of each trace, from 0; all nodes at 1 and above. */
  readonly tracedNodes: number;
}

const noTraces: MarkerTraces = { traceparents: [], tracedNodes: 0 };
