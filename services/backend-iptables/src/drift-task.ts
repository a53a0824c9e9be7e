import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { Counter, type Registry } from "prom-client";
import type { NodeRules } from "./node-rules.ts";

export interface DriftTaskOptions {
  readonly rules: Pick<NodeRules, "repair">;
  /** Time between two looks, in milliseconds. */
  readonly driftMs: number;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Default {@link waitMs}. */
  readonly wait?: typeof waitMs | undefined;
}

/** After the start an iptables-restore of a program that was killed may still have been at work. *Unit:* milliseconds. */
const firstMs = 5_000;

/**
 * Looks again and again whether somebody else changed our rules, and undoes it.
 *
 * A look that fails is told in health (part "drift"), metrics and log, and repeated.
 */
export function driftTask({ rules, driftMs, log, health, metrics, wait = waitMs }: DriftTaskOptions): Task {
  const checks = new Counter({
    name: "kpng_iptables_drift_checks_total",
    help: "Looks whether somebody else changed our rules, by result",
    labelNames: ["result"] as const,
    registers: [metrics],
  });
  for (const result of ["ok", "failed"]) checks.inc({ result }, 0);
  const run = async (signal: AbortSignal): Promise<void> => {
    health.setReady("drift");
    let delayMs = Math.min(driftMs, firstMs);
    for (;;) {
      await wait(delayMs, signal);
      if (signal.aborted) return;
      const startMs = performance.now();
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
      // On a node with very many rules to look takes long; it must not be most of what the node does.
      delayMs = Math.max(driftMs, 20 * (performance.now() - startMs));
    }
  };
  return { name: "backend/iptables/drift", run };
}
