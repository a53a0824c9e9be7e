import { hashText } from "@kpng/model/wire/hash.ts";
import { parseTraceparent } from "@kpng/process/trace/traceparent.ts";
import type { Traceparent } from "@kpng/process/trace/tracing.ts";

/**
 * Returns true if this node records its part of a trace. With thousands of nodes, only the fraction `share` of them
 * does; 1 or more means all of them. `TraceSyncs` calls it before it records spans. Separate from it, because it is
 * pure: a hash of trace and node decides, so different nodes record different traces.
 *
 * *Source of `share`:* TracedNodes of the message EmptyOp.
 */
export function recordsTrace(traceparent: Traceparent, nodeName: string, share: number): boolean {
  const traceId = parseTraceparent(traceparent)?.traceId;
  if (traceId === undefined) return false;
  return share >= 1 || Number(hashText(`${traceId} ${nodeName}`)) / 2 ** 64 < share;
}
