import { Health } from "@kpng/process/health.ts";
import { createLog, type Log, type LogLevel } from "@kpng/process/log.ts";
import type { ObserveAddresses } from "@kpng/process/observe.ts";
import { Registry } from "prom-client";

/** Values of options by the names that commander gives them. */
export type Options = Readonly<Record<string, unknown>>;

/** What every part of a process uses. */
export interface CommandContext {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
}

/** Values of the options that every command that stays has. */
export interface CommonOptions extends ObserveAddresses {
  readonly logLevel: LogLevel;
}

export function makeContext(options: CommonOptions): CommandContext {
  return { log: createLog(options.logLevel), health: new Health(), metrics: new Registry() };
}
