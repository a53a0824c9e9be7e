import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { addCounter } from "@kpng/process/health/metrics.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { runWithMain } from "@kpng/process/task.ts";
import type { Registry } from "prom-client";
import type { BackendContext } from "../backend/backend-command.ts";
import { backendTask } from "../backend/backend-task.ts";
import { familyLabels, ProxyMetrics } from "../observe/proxy-metrics.ts";
import type { PeriodicCheck } from "../sync/sync-loop.ts";
import type { SyncStages, SyncUpdate } from "../types/sync-update.ts";
import { AfterCommit } from "./after-commit.ts";
import type { ProxyRun } from "./proxy-spec.ts";
import type { RuleChange } from "./rule-set.ts";
import { type FamilyOutcome, RuleSets } from "./rule-sets.ts";

/** When a service proxy syncs and checks, and where it saves its view. */
interface ServeOptions {
  /** Time between two checks for changes by other programs, in milliseconds; 0 for none. */
  readonly checkMs: number;
  readonly minIntervalMs: number;
  readonly stateFolder: string | undefined;
}

/**
 * Returns the main task of a service proxy. The task follows the view of the node and installs the rules for it, or
 * prints them with `--dry-run`. It connects the parts in this folder to `backendTask`.
 *
 * The task rejects with the error from `openRuleSets` if the node does not support such rules, and like `backendTask`.
 */
export function proxyTask<Change extends RuleChange>(proxyRun: ProxyRun<Change>, serve: ServeOptions): Task {
  return { name: `backend/${proxyRun.name}`, run: (signal) => run(proxyRun, serve, signal) };
}

async function run<Change extends RuleChange>(
  proxyRun: ProxyRun<Change>,
  { checkMs, minIntervalMs, stateFolder }: ServeOptions,
  signal: AbortSignal,
): Promise<void> {
  const { name, proxy, host, context } = proxyRun;
  const { metrics, proxyHealth } = context;
  // Register this part first. If only the other, ready parts existed, the process would count as ready before its rules
  // are open.
  context.health.setWaiting(name, "not yet synced");
  const opened = await proxy.openRuleSets(host);
  const { ruleSets, onOutcome } = opened;
  const families = ruleSets.map(({ family }) => family);
  const repairs = countRepairs(metrics, ruleSets);
  const rules = new RuleSets({
    ...host,
    ruleSets,
    onOutcome: (outcome) => {
      repairs(outcome);
      onOutcome?.(outcome);
      reportOutcome(outcome, context);
    },
  });
  proxyHealth?.setFamilies(families);
  const isCommitted = host.destination.kind === "kernel";
  const after = new AfterCommit(proxyRun, opened);
  const onChanges = async (update: SyncUpdate, stop: AbortSignal, stages: SyncStages): Promise<void> => {
    after.expect(update);
    const { view, isFromDisk = false, isAfterReboot = false } = update;
    const { inForce, failure } = await (isFromDisk
      ? rules.useSaved(view, isAfterReboot, stages)
      : rules.sync(view, servicesOf(update), stages));
    // A rule set that had nothing to commit has not reported this stage. A second report has no effect.
    stages.committing();
    if (isCommitted) await after.run(update, inForce, stop);
    if (failure !== undefined) throw failure.cause;
  };
  const following = backendTask({
    ...context,
    name,
    onChanges,
    minIntervalMs,
    check: checkMs === 0 ? undefined : driftCheck(rules, checkMs, context),
    requests: host.requests,
    observers: [new ProxyMetrics({ registry: metrics, families })],
    stateFolder,
    isDryRun: !isCommitted,
    ruleSets: () => rules.inspect(),
  });
  await runWithMain(following, isCommitted ? after.tasks : [], signal).finally(() => rules.close());
}

/**
 * Returns the Services that `RuleSets.sync` compares. After a failure, a family that succeeded needs only the Services
 * that changed since all families last succeeded; the family that failed compares everything.
 */
function servicesOf({ mode, fullReason, touched }: SyncUpdate): ReadonlySet<ServiceKey> | "all" {
  return mode === "partial" || fullReason === "failure" ? touched : "all";
}

/** Registers the metric that counts repairs. Returns the function to be called after each sync and repair. */
export function countRepairs(
  registry: Registry,
  ruleSets: readonly { readonly family: Family }[],
): (outcome: FamilyOutcome) => void {
  const help = "Repairs of changes that other programs made to our rules";
  const labels = ruleSets.map(({ family }) => familyLabels[family]);
  const repairs = addCounter(registry, "kpng_backend_repairs_total", help, "ip_family", labels);
  return ({ cause, family, result }) => {
    if (cause !== "repair" || result.kind !== "done" || result.change.mode === "none") return;
    repairs.inc({ ip_family: familyLabels[family] });
  };
}

/** Reports an outcome in health, and its change in the log. A failure is logged by the sync loop or the check. */
function reportOutcome({ family, cause, elapsedMs, result }: FamilyOutcome, context: BackendContext): void {
  const { log, health, proxyHealth } = context;
  const part = `rules/${familyLabels[family]}`;
  if (result.kind === "failed") {
    health.setFailing(part, reasonOf(result.error));
    return;
  }
  health.setReady(part);
  proxyHealth?.setInForce(family);
  if (result.kind === "kept" || result.change.mode === "none") return;
  const { mode, fields } = result.change;
  if (cause === "repair") log.info("rules repaired", { family, ...fields });
  else log.debug("rules committed", { family, mode, ...fields, elapsedMs: Math.round(elapsedMs) });
}

/**
 * Returns the check that repairs changes by other programs. A failed one is reported in health (part "drift"), metrics
 * and log, and repeated after the interval.
 */
export function driftCheck(
  rules: Pick<RuleSets, "repair">,
  intervalMs: number,
  { log, health, metrics }: Pick<BackendContext, "log" | "health" | "metrics">,
): PeriodicCheck {
  const help = "Checks of the installed rules for changes by other programs, by result";
  const checks = addCounter(metrics, "kpng_backend_drift_checks_total", help, "result", ["ok", "failed"]);
  health.setReady("drift");
  const run = async (): Promise<void> => {
    const outcomes = await rules.repair();
    if (outcomes === undefined) return;
    if (outcomes.failure === undefined) {
      checks.inc({ result: "ok" });
      health.setReady("drift");
      return;
    }
    const reason = reasonOf(outcomes.failure.cause);
    checks.inc({ result: "failed" });
    health.setFailing("drift", reason);
    log.error("check of installed rules failed: trying again", { reason });
  };
  return { intervalMs, run };
}
