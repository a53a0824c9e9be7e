import type { Traceparent } from "./tracing.ts";

/**
 * The parts of a traceparent. A traceparent (W3C Trace Context) names a span, so that another process can continue its
 * trace.
 */
export interface SpanIdentity {
  /** 32 hexadecimal digits, lower case. */
  readonly traceId: string;
  /** 16 hexadecimal digits, lower case. */
  readonly spanId: string;
}

const shape = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]$/;

/**
 * Returns the parts of a traceparent; undefined if it is invalid or its span is not sampled. The exporter and backends
 * call it; all others pass a traceparent on as text. Separate from the exporter, so that backends load no SDK for it.
 */
export function parseTraceparent(text: string): SpanIdentity | undefined {
  const [, traceId, spanId] = shape.exec(text) ?? [];
  return traceId === undefined || spanId === undefined ? undefined : { traceId, spanId };
}

/** Returns the traceparent of a sampled span. */
export function formatTraceparent({ traceId, spanId }: SpanIdentity): Traceparent {
  return `00-${traceId}-${spanId}-01`;
}

/**
 * Returns the fields of a log line that belongs to a span.
 *
 * Source: OpenTelemetry, "Trace Context in non-OTLP Log Formats".
 */
export function traceFields(traceparent: Traceparent | undefined): Readonly<Record<string, string>> {
  const identity = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return identity === undefined ? {} : { trace_id: identity.traceId, span_id: identity.spanId };
}
