import type { BackendContext } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { touchedServices } from "@kpng/backend-kit/state/touched-services.ts";
import type { SyncUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { NodeRules } from "../node-rules.ts";
import { makeFormatObject, type ObjectFormat } from "../object-format.ts";
import type { Variant } from "../read/find-tools.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import type { Settings } from "../render/settings.ts";
import { differenceKey } from "./difference.ts";
import { formatChange, formatSummary, type ReportFormat } from "./format-report.ts";
import { SettledDifferences } from "./settled-differences.ts";
import { FamilyComparer, openShadowFamilies, type ShadowFamily } from "./shadow-families.ts";
import { createShadowMetrics, type ShadowMetrics } from "./shadow-metrics.ts";

export interface ShadowTaskOptions {
  readonly settings: Settings;
  readonly context: BackendContext;
  readonly variant: Variant | "auto";
  /** Longest time that one tool may take, in milliseconds. */
  readonly timeoutMs: number;
  /** Time from the end of one look to the next, in milliseconds; longer on a node where a look takes long. */
  readonly intervalMs: number;
  /** How long a difference must last to be told, in milliseconds. */
  readonly settleMs: number;
  readonly format: "table" | ObjectFormat;
  readonly print: (text: string) => void;
  /** Told at the end of a run with `isOnce` whether both treat all packets alike. */
  readonly onVerdict: (isSame: boolean) => void;
}

/** A look costs at most this part of the time, in percent: 100 / 5 − 1 times its duration is waited after it. */
const restFactor = 19;

/** Time between two looks while a difference settles, in milliseconds. */
const settlingMs = 1_000;

/**
 * Follows the view, works out our rules, and tells where they would treat packets otherwise than kube-proxy's rules in
 * the kernel do. Changes nothing: it runs `iptables-save` alone.
 *
 * Rejects with IPTABLES_MISSING or IPTABLES_TOO_OLD; with `isOnce` also with NO_KUBE_PROXY if there is nothing to compare
 * with.
 */
export function shadowTask(options: ShadowTaskOptions): Task {
  const { context } = options;
  return {
    name: "backend/iptables/shadow",
    run: async (signal) => {
      const { log } = context;
      const opened = await openShadowFamilies(options.variant, options.timeoutMs, log);
      log.info("shadow mode: no rule is changed", { intervalMs: options.intervalMs, settleMs: options.settleMs });
      const format = options.format === "table" ? undefined : await makeFormatObject(options.format);
      const shadow = new Shadow(options, opened, format);
      const onChanges = (update: SyncUpdate) => shadow.sync(update);
      const following = backendTask({ ...context, name: "iptables-shadow", state: undefined, onChanges });
      if (context.isOnce) {
        await following.run(signal);
        await shadow.judge(signal);
        return;
      }
      const looking: Task = { name: "backend/iptables/shadow/looks", run: (stop) => shadow.lookForEver(stop) };
      await runWithMain(following, [looking], signal);
      shadow.summarise();
    },
  };
}

class Shadow {
  readonly #options: ShadowTaskOptions;
  readonly #format: ReportFormat;
  readonly #rules: NodeRules<ShadowFamily>;
  readonly #comparers: readonly FamilyComparer[];
  readonly #metrics: ShadowMetrics;
  readonly #settled: SettledDifferences;
  readonly #told = new Set<string>();
  readonly #startMs = performance.now();
  #view: NodeView | undefined;
  #present: ReturnType<SettledDifferences["take"]>["present"] = [];
  #looks = 0;
  #isFirstBlock = true;
  #isMissingSaid = false;

  constructor(options: ShadowTaskOptions, opened: readonly ShadowFamily[], format: ReportFormat) {
    this.#options = options;
    this.#format = format;
    this.#rules = new NodeRules(options.settings, opened, () => undefined, options.context.log);
    this.#comparers = opened.map((family) => new FamilyComparer(family));
    this.#metrics = createShadowMetrics(options.context.metrics);
    this.#settled = new SettledDifferences(options.settleMs);
    options.context.health.setWaiting("shadow", "not yet compared");
  }

  async sync({ view, mode, changes }: SyncUpdate): Promise<void> {
    await this.#rules.sync(view, mode === "full" ? "all" : touchedServices(changes));
    this.#view = view;
  }

  /** Looks until `signal` aborts. A look that fails is logged and repeated. */
  async lookForEver(signal: AbortSignal): Promise<void> {
    const { intervalMs, context } = this.#options;
    while (!signal.aborted) {
      const startMs = performance.now();
      let isLooked = false;
      try {
        isLooked = await this.#look(signal);
        this.#metrics.looks.inc({ result: "ok" });
      } catch (error) {
        this.#metrics.looks.inc({ result: "failed" });
        context.health.setFailing("shadow", reasonOf(error));
        context.log.error("rules could not be compared", { reason: reasonOf(error) });
      }
      const restMs = restFactor * (performance.now() - startMs);
      const soonMs = isLooked && !this.#settled.isSettling ? intervalMs : Math.min(intervalMs, settlingMs);
      await waitMs(Math.max(soonMs, restMs), signal);
    }
  }

  /** Looks until the differences that there are have lasted, tells them, and says whether there are any. */
  async judge(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (!(await this.#look(signal))) {
        const text = "no chain KUBE-SERVICES in table nat: kube-proxy in iptables mode has no rules on this node";
        throw new BackendIptablesError("NO_KUBE_PROXY", text);
      }
      if (this.#settled.isSettling) {
        await waitMs(Math.min(settlingMs, this.#options.settleMs), signal);
        continue;
      }
      this.#options.onVerdict(this.#present.length === 0);
      return;
    }
  }

  /** What was told, at the end. */
  summarise(): void {
    const elapsedMs = performance.now() - this.#startMs;
    const summary = { looks: this.#looks, told: this.#told.size, present: this.#present, elapsedMs };
    this.#options.print(formatSummary(this.#format, new Date(), summary));
  }

  /** True if there was something to compare. */
  async #look(signal: AbortSignal): Promise<boolean> {
    const { context, print } = this.#options;
    const view = this.#view;
    if (view === undefined) return false;
    const looks = [];
    for (const comparer of this.#comparers) {
      looks.push({ family: comparer.family, ...(await comparer.look(view, signal)) });
      if (signal.aborted) return false;
    }
    if (!looks.some(({ hasKubeProxy }) => hasKubeProxy)) {
      context.health.setWaiting("shadow", "kube-proxy has no rules on this node");
      if (!this.#isMissingSaid) context.log.error("kube-proxy has no rules on this node");
      this.#isMissingSaid = true;
      return false;
    }
    this.#isMissingSaid = false;
    this.#looks++;
    const seen = looks.flatMap(({ differences }) => differences);
    const change = this.#settled.take(seen, performance.now());
    this.#present = change.present;
    for (const { family } of looks) this.#metrics.set(family, change.present);
    for (const difference of change.appeared) this.#told.add(differenceKey(difference));
    context.health.setReady("shadow");
    const isNews = change.appeared.length + change.gone.length > 0;
    // The first block also says that there is no difference, once that is known.
    if (!isNews && !(this.#isFirstBlock && !this.#settled.isSettling)) return true;
    this.#isFirstBlock = false;
    const packets = looks.reduce((total, look) => total + look.packets, 0);
    const services = Math.max(...looks.map((look) => look.services));
    print(formatChange(this.#format, new Date(), change, { packets, services }));
    return true;
  }
}
