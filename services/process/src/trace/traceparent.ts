import type { Traceparent } from "./tracing.ts";

/** The parts of a traceparent. */
export interface SpanIdentity {
  /** 32 hexadecimal digits, lower case. */
  readonly traceId: string;
  /** 16 of them. */
  readonly spanId: string;
}

const shape = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]$/;

/** Returns undefined for a text of another shape, and for a span that is not sampled. */
export function parseTraceparent(text: string): SpanIdentity | undefined {
  const [, traceId, spanId] = shape.exec(text) ?? [];
  return traceId === undefined || spanId === undefined ? undefined : { traceId, spanId };
}

export function formatTraceparent({ traceId, spanId }: SpanIdentity): Traceparent {
  return `00-${traceId}-${spanId}-01`;
}

/** Fields for a line of the log that belongs to a span, named as OpenTelemetry names them in formats that are not its own. */
export function traceFields(traceparent: Traceparent | undefined): Readonly<Record<string, string>> {
  const identity = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return identity === undefined ? {} : { trace_id: identity.traceId, span_id: identity.spanId };
}
