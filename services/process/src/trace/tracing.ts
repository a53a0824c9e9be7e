/** *Shape:* `00-TRACE-SPAN-01` of W3C Trace Context: 32 and 16 hexadecimal digits. Always of a span that is recorded. */
export type Traceparent = string;

/** Names and values as in OpenTelemetry's semantic conventions; ours begin with `kpng.`. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | readonly string[]>>;

export interface SpanStart {
  /** Milliseconds since 1970, with fractions; see `wall-clock.ts`. */
  readonly startMs: number;
  /** "producer" for what others will take up, "consumer" for who does. Default "internal". */
  readonly kind?: "internal" | "producer" | "consumer" | undefined;
  /** Undefined for the first span of a trace. */
  readonly parent?: Traceparent | undefined;
  /** Traces that this span has taken up besides. */
  readonly links?: readonly Traceparent[] | undefined;
}

export interface SpanEnd {
  /** Milliseconds since 1970, with fractions; what lies before the start counts as the start. */
  readonly endMs: number;
  readonly attributes?: SpanAttributes | undefined;
  /** Why what the span stands for failed. */
  readonly error?: string | undefined;
}

/** A span that has begun; it is exported when it ends. */
export interface OpenSpan {
  readonly traceparent: Traceparent;
  end(end: SpanEnd): void;
}

/**
 * Where spans go. A process has one only if traces are exported, so that all others pay nothing.
 *
 * Times are given and not taken: a stage is recorded when it is over, by who knows that it was one.
 */
export interface Tracing {
  /** Undefined if the span is not sampled; then nothing below it is to be recorded either. */
  begin(name: string, start: SpanStart): OpenSpan | undefined;
  /** Exports what has ended so far, for at most some seconds, and then takes no more. */
  close(): Promise<void>;
}

/** A whole span at once. Returns undefined if it is not sampled. */
export function recordSpan(tracing: Tracing, name: string, span: SpanStart & SpanEnd): Traceparent | undefined {
  const open = tracing.begin(name, span);
  open?.end(span);
  return open?.traceparent;
}

/** Name of this process in its traces, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES sets another one. */
export interface TracedProcess {
  /** For example "kpng-watcher". */
  readonly name: string;
  readonly version: string;
}
