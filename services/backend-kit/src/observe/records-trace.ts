import { hashText } from "@kpng/model/wire/hash.ts";
import { parseTraceparent } from "@kpng/process/trace/traceparent.ts";
import type { Traceparent } from "@kpng/process/trace/tracing.ts";

/**
 * True if this node is one of those that record their part of a trace, of which `share` is wanted: all at 1 and above.
 *
 * A node decides the same for all parts of a trace, and the nodes of one trace are others than those of the next.
 *
 * Pure. Source: TracedNodes of EmptyOp.
 */
export function recordsTrace(traceparent: Traceparent, nodeName: string, share: number): boolean {
  const traceId = parseTraceparent(traceparent)?.traceId;
  if (traceId === undefined) return false;
  return share >= 1 || Number(hashText(`${traceId} ${nodeName}`)) / 2 ** 64 < share;
}
