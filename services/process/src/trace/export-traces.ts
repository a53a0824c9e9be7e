import {
  DiagLogLevel,
  diag,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-grpc";
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Log } from "../log.ts";
import { ProcessError } from "../process-error.ts";
import { waitMs } from "../wait.ts";
import type { OpenSpan, SpanEnd, SpanStart, TracedProcess, Traceparent, Tracing } from "./tracing.ts";
import { formatTraceparent, parseTraceparent, type TraceSettings } from "./tracing.ts";

/** How long completed spans are collected before they are exported, in milliseconds. */
const exportDelayMs = 1_000;

/** Time limit for the last export when the process exits, in milliseconds. */
const closeLimitMs = 2_000;

/**
 * Returns the {@link Tracing} that exports spans over OTLP. Only this file depends on OpenTelemetry's SDK. Errors:
 * BAD_OPTION.
 *
 * *Bound:* at most 2 048 spans wait for export. While the collector is unreachable or slow, further spans are dropped
 * and the log says so.
 */
export function exportTraces({ name, version }: TracedProcess, settings: TraceSettings, log: Log): Tracing {
  logFailures(log);
  const program = resourceFromAttributes({
    "service.name": name,
    "service.version": version,
    "service.namespace": "kpng",
  });
  const provider = new TracerProvider({
    sampler: samplerOf(settings),
    // Later resources take precedence.
    resource: defaultResource()
      .merge(program)
      .merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor({ exporter: makeExporter(), scheduledDelayMillis: exportDelayMs })],
  });
  const tracer = provider.getTracer("kpng", version);
  log.info("exporting traces over OTLP", { ratio: settings.ratio });
  return {
    begin: (spanName, start) => begin(tracer, spanName, start),
    close: async () => {
      const stop = new AbortController();
      const closed = provider.shutdown().catch(() => undefined);
      await Promise.race([closed, waitMs(closeLimitMs, stop.signal)]);
      stop.abort();
    },
  };
}

/** Creates the exporter, which reads its endpoint, headers and certificates from the environment. */
function makeExporter(): OTLPTraceExporter {
  try {
    return new OTLPTraceExporter();
  } catch {
    // Omit the cause, because it may contain the value of a header, which is a secret.
    throw new ProcessError("BAD_OPTION", "OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_HEADERS is invalid");
  }
}

function samplerOf({ ratio, isParentBased }: TraceSettings): Sampler {
  const root = new TraceIdRatioBasedSampler(ratio);
  return isParentBased ? new ParentBasedSampler({ root }) : root;
}

/** Logs the SDK's errors (failed exports) and its warnings (invalid settings). */
function logFailures(log: Log): void {
  const error = (message: string): void => log.error("export of traces failed", { reason: messageIn(message) });
  const warn = (message: string): void =>
    log.error("invalid setting of the trace exporter", { reason: messageIn(message) });
  const ignore = (): void => undefined;
  diag.setLogger(
    { error, warn, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
}

/** Returns the message of an SDK error. The SDK formats errors as JSON, with the stack. */
function messageIn(message: string): string {
  try {
    const error: unknown = JSON.parse(message);
    if (typeof error === "object" && error !== null && "message" in error) return String(error.message);
  } catch {
    // The text is not JSON, so it is the message itself.
  }
  return message.slice(0, 500);
}

function begin(tracer: Tracer, name: string, { startMs, kind, parent, links = [] }: SpanStart): OpenSpan | undefined {
  const [parentContext] = toContexts(parent === undefined ? [] : [parent]);
  const span = tracer.startSpan(
    name,
    { startTime: startMs, kind: kinds[kind ?? "internal"], links: toContexts(links).map((context) => ({ context })) },
    parentContext === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parentContext),
  );
  if (!span.isRecording()) return undefined;
  return {
    traceparent: formatTraceparent(span.spanContext()),
    end: ({ endMs, attributes, error }: SpanEnd) => {
      for (const [key, value] of Object.entries(attributes ?? {})) {
        span.setAttribute(key, typeof value === "object" ? [...value] : value);
      }
      if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: error });
      span.end(Math.max(startMs, endMs));
    },
  };
}

const kinds = { internal: SpanKind.INTERNAL, producer: SpanKind.PRODUCER, consumer: SpanKind.CONSUMER } as const;

function toContexts(traceparents: readonly Traceparent[]): readonly SpanContext[] {
  return traceparents.flatMap((traceparent) => {
    const identity = parseTraceparent(traceparent);
    return identity === undefined ? [] : [{ ...identity, traceFlags: TraceFlags.SAMPLED, isRemote: true }];
  });
}
