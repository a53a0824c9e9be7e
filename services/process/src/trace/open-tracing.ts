import type { Log } from "../log.ts";
import { checkTraceHeaders } from "./trace-headers.ts";
import { readTraceSettings } from "./trace-settings.ts";
import type { TracedProcess, Tracing } from "./tracing.ts";

/**
 * Returns the tracing of this process; undefined if the environment does not configure an export (see
 * {@link readTraceSettings}). Programs of this project call {@link withTracing} instead.
 *
 * Separate from `exportTraces`, so that OpenTelemetry's SDK, which takes 0.15 s and 34 MB, is loaded only if needed.
 *
 * Errors: BAD_OPTION for an invalid value of an OpenTelemetry environment variable.
 */
export async function openTracing(traced: TracedProcess, log: Log): Promise<Tracing | undefined> {
  const settings = readTraceSettings(process.env);
  if (settings === undefined) return undefined;
  for (const reason of checkTraceHeaders(process.env)) log.error("invalid header for the trace exporter", { reason });
  const { exportTraces } = await import("./export-traces.ts");
  return exportTraces(traced, settings, log);
}

/**
 * Calls `work`, the main part of a program, with the result of {@link openTracing}; closes it when `work` is done.
 * `withContext` of `kpng` and `runBackendCommand` call it.
 */
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
