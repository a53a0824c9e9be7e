import { Health } from "@kpng/process/health.ts";
import { createLog, type Log, type LogLevel } from "@kpng/process/log.ts";
import { observeTask } from "@kpng/process/observe.ts";
import type { Task } from "@kpng/process/task.ts";
import { collectDefaultMetrics, Registry } from "prom-client";

/** What every command of `kpng` that stays has. */
export interface CommandContext {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  readonly signal: AbortSignal;
}

/** Values of the options that every such command has. */
export interface CommonOptions {
  readonly logLevel: LogLevel;
  readonly healthzBindAddress?: string | undefined;
  readonly metricsBindAddress?: string | undefined;
}

export function makeContext(options: CommonOptions, signal: AbortSignal): CommandContext {
  const metrics = new Registry();
  return { log: createLog(options.logLevel), health: new Health(), metrics, signal };
}

/** The listeners for health and metrics that the options ask for: none, one or two. */
export function observeTasks(options: CommonOptions, context: CommandContext): Task[] {
  const addresses = [options.healthzBindAddress, options.metricsBindAddress].filter((address) => address !== undefined);
  if (addresses.length > 0) collectDefaultMetrics({ register: context.metrics });
  return [...new Set(addresses)].map((address) =>
    observeTask({ address, health: context.health, metrics: context.metrics }),
  );
}
