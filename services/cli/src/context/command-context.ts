import { Health } from "@kpng/process/health/health.ts";
import { createLog, type Log, type LogLevel } from "@kpng/process/log.ts";
import { withTracing } from "@kpng/process/trace/open-tracing.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import { Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };

/** Log, health, metrics and tracing of a process, which every source, sink and backend uses. */
export interface CommandContext {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Records traces; undefined if the environment configures no exporter. */
  readonly tracing?: Tracing | undefined;
}

/** Values of options by the names that commander gives them: `--log-level` is `logLevel`. */
export type Options = Readonly<Record<string, unknown>>;

/**
 * Makes the context of a process, passes it to `work`, and ends tracing afterwards.
 *
 * `options` contains `logLevel`. `name` is the name of the process in traces, for example "kpng-watcher".
 */
export async function withContext(
  options: Options,
  name: string,
  work: (context: CommandContext) => Promise<void>,
): Promise<void> {
  const log = createLog(options.logLevel as LogLevel);
  await withTracing({ name, version: packageJson.version }, log, (tracing) =>
    work({ log, health: new Health(), metrics: new Registry(), tracing }),
  );
}
