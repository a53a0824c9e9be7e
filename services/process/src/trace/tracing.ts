/**
 * Identity of a recorded span in the W3C Trace Context format, `00-TRACE-SPAN-01`, where TRACE has 32 and SPAN has 16
 * hexadecimal digits. The types and functions in this file do not depend on OpenTelemetry's SDK.
 */
export type Traceparent = string;

/** Attributes of a span, named as in OpenTelemetry's semantic conventions; our own names begin with `kpng.`. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/** Beginning of a span. */
export interface SpanStart {
  /** Milliseconds since 1970, with fractions; see `wall-clock.ts`. */
  readonly startMs: number;
  /**
   * "producer" for a span that other processes continue, "consumer" for a span that continues one. Default "internal".
   */
  readonly kind?: "internal" | "producer" | "consumer" | undefined;
  /** Parent span; undefined for the first span of a trace. */
  readonly parent?: Traceparent | undefined;
  /** Further spans that led to this one, usually from other traces. */
  readonly links?: readonly Traceparent[] | undefined;
}

/** End of a span. */
export interface SpanEnd {
  /** Milliseconds since 1970, with fractions; not earlier than the start. */
  readonly endMs: number;
  readonly attributes?: SpanAttributes | undefined;
  /** Error message, if the operation failed. */
  readonly error?: string | undefined;
}

/** A span that has begun. It is exported when it ends. */
export interface OpenSpan {
  readonly traceparent: Traceparent;
  end(end: SpanEnd): void;
}

/**
 * Records spans. It exists only in a process that exports traces, so that tracing costs nothing in other processes.
 *
 * The caller passes all times, because a span is often recorded only after its operation is over.
 */
export interface Tracing {
  /** Begins a span. Returns undefined if the span is not sampled; then its children must not be recorded either. */
  begin(name: string, start: SpanStart): OpenSpan | undefined;
  /** Exports the completed spans, which takes at most 2 s, and stops tracing. */
  close(): Promise<void>;
}

/** Records a completed span. Returns undefined if it is not sampled. */
export function recordSpan(tracing: Tracing, name: string, span: SpanStart & SpanEnd): Traceparent | undefined {
  const open = tracing.begin(name, span);
  open?.end(span);
  return open?.traceparent;
}

/** Identifies this process in traces, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES does. */
export interface TracedProcess {
  /** Name of the process, for example "kpng-watcher". */
  readonly name: string;
  readonly version: string;
}

/** The two identifiers in a traceparent: 32 and 16 hexadecimal digits, lower case. */
interface SpanIdentity {
  readonly traceId: string;
  readonly spanId: string;
}

const shape = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]$/;

/** Returns the parts of a traceparent; undefined if it is invalid or its span is not sampled. */
export function parseTraceparent(text: string): SpanIdentity | undefined {
  const [, traceId, spanId] = shape.exec(text) ?? [];
  return traceId === undefined || spanId === undefined ? undefined : { traceId, spanId };
}

/** Returns the traceparent of a sampled span. */
export function formatTraceparent({ traceId, spanId }: SpanIdentity): Traceparent {
  return `00-${traceId}-${spanId}-01`;
}

/** Returns the fields of a log line about a span. Source: OpenTelemetry, "Trace Context in non-OTLP Log Formats". */
export function traceFields(traceparent: Traceparent | undefined): Readonly<Record<string, string>> {
  const identity = traceparent === undefined ? undefined : parseTraceparent(traceparent);
  return identity === undefined ? {} : { trace_id: identity.traceId, span_id: identity.spanId };
}

/** Sampling of traces. */
export interface TraceSettings {
  /** Share of traces that are recorded, from 0 to 1. */
  readonly ratio: number;
  /** If true, a trace that another process began is always recorded. */
  readonly isParentBased: boolean;
}
