import { Health } from "@kpng/process/health/health.ts";
import { createLog, type Log, type LogLevel } from "@kpng/process/log.ts";
import { withTracing } from "@kpng/process/trace/open-tracing.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import { Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };

/** Log, health, metrics and tracing of a process, for use by every source and sink. */
export interface CommandContext {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Records traces; undefined if the environment configures no exporter. */
  readonly tracing?: Tracing | undefined;
}

/** Option values, keyed by the names that commander gives the options: `--log-level` is `logLevel`. */
export type Options = Readonly<Record<string, unknown>>;

/**
 * Makes the context of a watcher, passes it to `work`, and then ends tracing.
 *
 * `options` contains `logLevel`.
 */
export async function withContext(options: Options, work: (context: CommandContext) => Promise<void>): Promise<void> {
  const log = createLog(options.logLevel as LogLevel);
  await withTracing({ name: "kpng-watcher", version: packageJson.version }, log, (tracing) =>
    work({ log, health: new Health(), metrics: new Registry(), tracing }),
  );
}
