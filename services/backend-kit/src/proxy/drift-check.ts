import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Counter, type Registry } from "prom-client";
import type { PeriodicCheck } from "../sync/sync-loop.ts";
import type { RuleSets } from "./rule-sets.ts";

export interface DriftCheckOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly rules: Pick<RuleSets, "repair">;
  readonly intervalMs: number;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
}

/**
 * Compares the installed rules with the wanted ones at an interval, and repairs changes by other programs.
 *
 * A check that fails is reported in health (part "drift"), metrics and log, and repeated at the next interval.
 */
export function driftCheck(options: DriftCheckOptions): PeriodicCheck {
  const { name, rules, intervalMs, log, health, metrics } = options;
  const checks = new Counter({
    name: `kpng_${name}_drift_checks_total`,
    help: "Looks whether somebody else changed our rules, by result",
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
      log.error("rules could not be checked", { reason });
    }
  };
  return { intervalMs, run };
}
