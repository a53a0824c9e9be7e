import { Health } from "@kpng/process/health.ts";
import { createLog, type Log, type LogLevel } from "@kpng/process/log.ts";
import type { ObserveAddresses } from "@kpng/process/observe.ts";
import { readClientTls, type TlsFiles } from "@kpng/process/tls-files.ts";
import { withTracing } from "@kpng/process/trace/open-tracing.ts";
import type { Tracing } from "@kpng/process/trace/tracing.ts";
import { Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };

/** Values of options by the names that commander gives them. */
export type Options = Readonly<Record<string, unknown>>;

/** What every part of a process uses. */
export interface CommandContext {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Where traces go, if they go anywhere. */
  readonly tracing?: Tracing | undefined;
}

/** Values of the options that every command that stays has. */
export interface CommonOptions extends ObserveAddresses {
  readonly logLevel: LogLevel;
}

/**
 * Makes the context of a process and gives it to `work`. `name` is what the process is called in traces, e.g.
 * "kpng-watcher".
 */
export async function withContext(
  options: CommonOptions,
  name: string,
  work: (context: CommandContext) => Promise<void>,
): Promise<void> {
  const log = createLog(options.logLevel);
  await withTracing({ name, version: packageJson.version }, log, (tracing) =>
    work({ log, health: new Health(), metrics: new Registry(), tracing }),
  );
}

/**
 * Reads the files that the options `--api-client-tls-…` name; undefined for none.
 *
 * Errors: TLS_FILES.
 */
export function readApiClientTls(options: Options): TlsFiles | undefined {
  const {
    apiClientTlsKey: key,
    apiClientTlsCrt: crt,
    apiClientTlsCa: ca,
  } = options as Record<string, string | undefined>;
  return readClientTls("api-client-", { key, crt, ca });
}
