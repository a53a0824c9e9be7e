import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Counter, type Registry } from "prom-client";
import type { PeriodicCheck } from "../sync/sync-loop.ts";
import type { RuleSets } from "./rule-sets.ts";

/** Options of {@link driftCheck}. */
export interface DriftCheckOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly rules: Pick<RuleSets, "repair">;
  /** Time between two checks, in milliseconds. */
  readonly intervalMs: number;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
}

/**
 * Returns the periodic check of a service proxy for drift, which means changes of its rules by other programs: it
 * compares the installed rules with the desired ones and repairs differences. `serveTask` gives it to the sync loop,
 * which runs it between syncs.
 *
 * A failed check is reported in health (part "drift"), metrics and log, and repeated at the next interval.
 */
export function driftCheck(options: DriftCheckOptions): PeriodicCheck {
  const { name, rules, intervalMs, log, health, metrics } = options;
  const checks = new Counter({
    name: `kpng_${name}_drift_checks_total`,
    help: "Checks of the installed rules for changes by other programs, by result",
    labelNames: ["result"] as const,
    registers: [metrics],
  });
  for (const result of ["ok", "failed"]) checks.inc({ result }, 0);
  health.setReady("drift");
  const run = async (): Promise<void> => {
    try {
      await rules.repair();
      checks.inc({ result: "ok" });
      health.setReady("drift");
    } catch (error) {
      const reason = reasonOf(error);
      checks.inc({ result: "failed" });
      health.setFailing("drift", reason);
      log.error("check of installed rules failed: trying again at the next interval", { reason });
    }
  };
  return { intervalMs, run };
}
