import type { Log } from "../log.ts";
import { ProcessError } from "../process-error.ts";
import type { TracedProcess, TraceSettings, Tracing } from "./tracing.ts";

/**
 * Returns the {@link Tracing} of this process; undefined if the environment does not configure an export. Errors:
 * BAD_OPTION for an invalid value of an OpenTelemetry environment variable.
 */
export async function openTracing(traced: TracedProcess, log: Log): Promise<Tracing | undefined> {
  const settings = readTraceSettings();
  if (settings === undefined) return undefined;
  // Load OpenTelemetry's SDK only if it is needed, because it takes 0.15 s and 34 MB.
  const { exportTraces } = await import("./export-traces.ts");
  return exportTraces(traced, settings, log);
}

/** Calls `work` with the result of {@link openTracing}, which it closes afterwards. */
export async function withTracing(
  traced: TracedProcess,
  log: Log,
  work: (tracing: Tracing | undefined) => Promise<void>,
): Promise<void> {
  const tracing = await openTracing(traced, log);
  try {
    await work(tracing);
  } finally {
    await tracing?.close();
  }
}

/**
 * Reads OpenTelemetry's environment variables. Returns undefined if no traces are exported: without an OTLP endpoint,
 * with OTEL_SDK_DISABLED=true, or with OTEL_TRACES_EXPORTER=none. The exporter reads the variables for endpoint,
 * headers, TLS, timeout and compression itself.
 *
 * Errors: BAD_OPTION for an invalid value. Source: OpenTelemetry, "Environment Variable Specification".
 */
function readTraceSettings(): TraceSettings | undefined {
  const value = (name: string): string => process.env[name]?.trim() ?? "";
  if (value("OTEL_EXPORTER_OTLP_ENDPOINT") === "" && value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") === "")
    return undefined;
  if (value("OTEL_SDK_DISABLED").toLowerCase() === "true") return undefined;
  const exporter = value("OTEL_TRACES_EXPORTER") || "otlp";
  if (exporter === "none") return undefined;
  if (exporter !== "otlp") throw bad("OTEL_TRACES_EXPORTER", exporter, "otlp or none");
  const protocol = value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") || value("OTEL_EXPORTER_OTLP_PROTOCOL") || "grpc";
  if (protocol !== "grpc") throw bad("OTEL_EXPORTER_OTLP_PROTOCOL", protocol, "grpc");
  return readSampler(value("OTEL_TRACES_SAMPLER") || "parentbased_always_on", value("OTEL_TRACES_SAMPLER_ARG") || "1");
}

function readSampler(sampler: string, argument: string): TraceSettings {
  const [, parent, kind] = /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(sampler) ?? [];
  if (kind === undefined) {
    throw bad("OTEL_TRACES_SAMPLER", sampler, "always_on, always_off or traceidratio, alone or after parentbased_");
  }
  const isParentBased = parent !== undefined;
  if (kind !== "traceidratio") return { ratio: kind === "always_on" ? 1 : 0, isParentBased };
  const ratio = Number(argument);
  if (!(ratio >= 0 && ratio <= 1)) throw bad("OTEL_TRACES_SAMPLER_ARG", argument, "a number from 0 to 1");
  return { ratio, isParentBased };
}

function bad(name: string, value: string, valid: string): ProcessError {
  return new ProcessError("BAD_OPTION", `${name}="${value}": write ${valid}`);
}
