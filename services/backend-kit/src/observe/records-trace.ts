import { hashText } from "@kpng/model/wire/hash.ts";
import { parseTraceparent } from "@kpng/process/trace/traceparent.ts";
import type { Traceparent } from "@kpng/process/trace/tracing.ts";

/**
 * Returns true if this node records its part of a trace. With thousands of nodes, only a share of them records it:
 * `share` is this fraction of the nodes, and 1 or more means all of them. `TraceSyncs` calls it before it records
 * spans.
 *
 * A hash of trace and node decides, so a node decides the same for all parts of a trace, and different nodes record
 * different traces.
 *
 * Pure. Source: TracedNodes of EmptyOp.
 */
export function recordsTrace(traceparent: Traceparent, nodeName: string, share: number): boolean {
  const traceId = parseTraceparent(traceparent)?.traceId;
  if (traceId === undefined) return false;
  return share >= 1 || Number(hashText(`${traceId} ${nodeName}`)) / 2 ** 64 < share;
}
