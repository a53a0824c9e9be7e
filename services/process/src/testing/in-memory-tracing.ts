import type { SpanEnd, SpanStart, Tracing } from "../trace/tracing.ts";
import { formatTraceparent, parseTraceparent } from "../trace/tracing.ts";

/** A span that has ended. */
export interface RecordedSpan extends SpanStart, SpanEnd {
  readonly name: string;
  readonly traceparent: string;
}

/**
 * Keeps the recorded spans, in the order in which they ended, for tests of the spans of watchers and backends.
 * `isSampled` is asked for the first span of each trace.
 */
export class InMemoryTracing implements Tracing {
  readonly spans: RecordedSpan[] = [];
  readonly #isSampled: () => boolean;
  #count = 0;

  constructor(isSampled: () => boolean = () => true) {
    this.#isSampled = isSampled;
  }

  begin(name: string, start: SpanStart): ReturnType<Tracing["begin"]> {
    if (start.parent === undefined && !this.#isSampled()) return undefined;
    this.#count += 1;
    const number = this.#count.toString(16);
    const traceId = start.parent === undefined ? number.padStart(32, "0") : parseTraceparent(start.parent)?.traceId;
    const traceparent = formatTraceparent({ traceId: traceId ?? "", spanId: number.padStart(16, "0") });
    return { traceparent, end: (end) => void this.spans.push({ ...start, ...end, name, traceparent }) };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
