import { Backoff } from "@kpng/process/backoff.ts";
import { realClock } from "@kpng/process/clock.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Counter, type Registry } from "prom-client";
import type { PeriodicCheck } from "../sync/sync-loop.ts";
import type { SyncRequests } from "../sync/sync-requests.ts";
import type { RuleSets } from "./rule-sets.ts";

/** Options of {@link driftCheck}. */
export interface DriftCheckOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly rules: Pick<RuleSets, "repair">;
  /** Time between two checks, in milliseconds. */
  readonly intervalMs: number;
  /** Receives a request for another check after one that failed. */
  readonly requests: SyncRequests;
  /** First delay after a failed check, in milliseconds; it doubles up to `intervalMs`. */
  readonly errorDelayMs: number;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Monotonic time in milliseconds. Default that of `realClock`. */
  readonly nowMs?: (() => number) | undefined;
}

/**
 * Returns the check that runs at an interval: it lets `RuleSets` compare the installed rules with the wanted ones, and
 * repair changes by other programs.
 *
 * A check that fails is reported in health (part "drift"), metrics and log, and repeated with backoff.
 */
export function driftCheck(options: DriftCheckOptions): PeriodicCheck {
  const { name, rules, intervalMs, requests, errorDelayMs, log, health, metrics, nowMs = realClock.nowMs } = options;
  const backoff = new Backoff({ minMs: Math.min(errorDelayMs, intervalMs), maxMs: intervalMs });
  const checks = new Counter({
    name: `kpng_${name}_drift_checks_total`,
    help: "Checks of the installed rules for changes by other programs, by result",
    labelNames: ["result"] as const,
    registers: [metrics],
  });
  for (const result of ["ok", "failed"]) checks.inc({ result }, 0);
  health.setReady("drift");
  const run = async (): Promise<void> => {
    const outcomes = await rules.repair();
    // Without a view there was nothing to compare with.
    if (outcomes === undefined) return;
    if (outcomes.failure === undefined) {
      backoff.reset();
      checks.inc({ result: "ok" });
      health.setReady("drift");
      return;
    }
    const reason = reasonOf(outcomes.failure.cause);
    const delayMs = backoff.nextMs();
    checks.inc({ result: "failed" });
    health.setFailing("drift", reason);
    log.error("check of installed rules failed: trying again", { reason, delayMs });
    requests.request("check", "the last check failed", nowMs() + delayMs);
  };
  return { intervalMs, run };
}
