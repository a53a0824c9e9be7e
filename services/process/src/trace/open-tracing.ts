import type { Log } from "../log.ts";
import { checkTraceHeaders } from "./trace-headers.ts";
import { readTraceSettings } from "./trace-settings.ts";
import type { TracedProcess, Tracing } from "./tracing.ts";

/**
 * Returns where this process's spans go, or undefined if the environment names no place; see {@link readTraceSettings}.
 *
 * The SDK takes 0.15 s and 34 MB to load: only who exports traces pays for it.
 *
 * Errors: BAD_OPTION.
 */
export async function openTracing(traced: TracedProcess, log: Log): Promise<Tracing | undefined> {
  const settings = readTraceSettings(process.env);
  if (settings === undefined) return undefined;
  for (const reason of checkTraceHeaders(process.env)) log.error("a header for traces is wrong", { reason });
  const { exportTraces } = await import("./export-traces.ts");
  return exportTraces(traced, settings, log);
}

/** Gives `work` what {@link openTracing} returns and closes it afterwards. */
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
