import type { BackendContext } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { makeFormatObject, type ObjectFormat } from "@kpng/backend-kit/proxy/object-format.ts";
import type { SyncUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import { families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { runWithMain } from "@kpng/process/run/run-tasks.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";
import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import { differenceKey } from "./difference.ts";
import { FamilyComparer } from "./family-comparer.ts";
import { formatChange, formatSummary, type ReportFormat } from "./format-report.ts";
import { type IptablesVariant, openKubeProxy } from "./read-kube-proxy.ts";
import { SettledDifferences } from "./settled-differences.ts";
import { ShadowError } from "./shadow-error.ts";
import { createShadowMetrics, type ShadowMetrics } from "./shadow-metrics.ts";

interface ShadowTaskOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly settings: ProxySettings;
  readonly context: BackendContext;
  /** The mode of kube-proxy that the backend behaves like. */
  readonly mode: ProxyMode;
  /** The kernel mechanism of the rules of kube-proxy's iptables mode. */
  readonly variant: IptablesVariant | "auto";
  /** Longest run of a program, in milliseconds. */
  readonly timeoutMs: number;
  /** Time from one comparison to the next, in milliseconds; longer on a node where a comparison takes long. */
  readonly intervalMs: number;
  /** How long a difference must last to be reported, in milliseconds. */
  readonly settleMs: number;
  readonly format: "table" | ObjectFormat;
  readonly print: (text: string) => void;
  /** Called at the end of a run with `isOnce`: whether both treat all packets alike. */
  readonly onVerdict: (isSame: boolean) => void;
}

/** After a comparison, this many times its duration passes before the next: it takes at most 5% of the time. */
const restFactor = 19;

/** Time between two comparisons while a difference settles, in milliseconds. */
const settlingMs = 1_000;

/**
 * Follows the view, and reports the packets that a backend with these settings would treat differently from
 * kube-proxy's rules in the kernel. It changes nothing: it runs only `iptables-save`, `iptables --version` and `nft
 * -j list table`. `shadowMode` returns it for `--shadow`. It connects the other files of this package, each of which
 * does one step.
 *
 * Rejects with IPTABLES_MISSING; with `isOnce` also with NO_KUBE_PROXY if kube-proxy has no rules, and SAVE_FAILED.
 */
export function shadowTask(options: ShadowTaskOptions): Task {
  const { name, context } = options;
  return {
    name: `backend/${name}/shadow`,
    run: async (signal) => {
      const { log } = context;
      const comparers = await openComparers(options);
      log.info("shadow mode: no rule is changed", { intervalMs: options.intervalMs, settleMs: options.settleMs });
      const format = options.format === "table" ? undefined : await makeFormatObject(options.format);
      const shadow = new Shadow(options, comparers, format);
      const onChanges = (update: SyncUpdate) => shadow.setView(update.view);
      const following = backendTask({ ...context, name: `${name}-shadow`, state: undefined, onChanges });
      if (context.isOnce) {
        await following.run(signal);
        await shadow.judge(signal);
        return;
      }
      const comparing: Task = { name: `backend/${name}/shadow/looks`, run: (stop) => shadow.run(stop) };
      await runWithMain(following, [comparing], signal);
      shadow.summarize();
    },
  };
}

/** Opens kube-proxy's rules of each family that this machine can have rules in. */
async function openComparers(options: ShadowTaskOptions): Promise<readonly FamilyComparer[]> {
  const { variant, timeoutMs, settings, context, mode } = options;
  const opened: FamilyComparer[] = [];
  for (const family of families) {
    const readKubeProxy = await openKubeProxy(family, { mode, variant, timeoutMs });
    if (readKubeProxy === undefined) context.log.info("no rules in this family", { family });
    else opened.push(new FamilyComparer(family, readKubeProxy, settings, mode));
  }
  return opened;
}

/** One run of shadow mode: compares at an interval, and reports differences that last. */
class Shadow {
  readonly #options: ShadowTaskOptions;
  readonly #format: ReportFormat;
  readonly #comparers: readonly FamilyComparer[];
  readonly #metrics: ShadowMetrics;
  readonly #settled: SettledDifferences;
  readonly #reported = new Set<string>();
  readonly #startMs = performance.now();
  #view: NodeView | undefined;
  #present: ReturnType<SettledDifferences["take"]>["present"] = [];
  #looks = 0;
  #isFirstBlock = true;
  #isMissingLogged = false;

  constructor(options: ShadowTaskOptions, comparers: readonly FamilyComparer[], format: ReportFormat) {
    this.#options = options;
    this.#format = format;
    this.#comparers = comparers;
    this.#metrics = createShadowMetrics(options.context.metrics);
    this.#settled = new SettledDifferences(options.settleMs);
    options.context.health.setWaiting("shadow", "not yet compared");
  }

  setView(view: NodeView): void {
    this.#view = view;
  }

  /** Compares until `signal` aborts. A comparison that fails is logged and repeated. */
  async run(signal: AbortSignal): Promise<void> {
    const { intervalMs, context } = this.#options;
    while (!signal.aborted) {
      const startMs = performance.now();
      let hasKubeProxy = false;
      try {
        hasKubeProxy = await this.#compare(signal);
        this.#metrics.looks.inc({ result: "ok" });
      } catch (error) {
        this.#metrics.looks.inc({ result: "failed" });
        context.health.setFailing("shadow", reasonOf(error));
        context.log.error("rules could not be compared", { reason: reasonOf(error) });
      }
      const restMs = restFactor * (performance.now() - startMs);
      const soonMs = hasKubeProxy && !this.#settled.isSettling ? intervalMs : Math.min(intervalMs, settlingMs);
      await waitMs(Math.max(soonMs, restMs), signal);
    }
  }

  /** Compares until the present differences have lasted, reports them, and calls `onVerdict`. */
  async judge(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (!(await this.#compare(signal))) {
        const text =
          "no chain KUBE-SERVICES in table nat, and no table kube-proxy: kube-proxy has no rules on this node";
        throw new ShadowError("NO_KUBE_PROXY", text);
      }
      if (this.#settled.isSettling) {
        await waitMs(Math.min(settlingMs, this.#options.settleMs), signal);
        continue;
      }
      this.#options.onVerdict(this.#present.length === 0);
      return;
    }
  }

  summarize(): void {
    const elapsedMs = performance.now() - this.#startMs;
    const summary = { looks: this.#looks, told: this.#reported.size, present: this.#present, elapsedMs };
    this.#options.print(formatSummary(this.#format, new Date(), summary));
  }

  /** Compares once. Returns true if kube-proxy has rules. */
  async #compare(signal: AbortSignal): Promise<boolean> {
    const { context, print } = this.#options;
    const view = this.#view;
    if (view === undefined) return false;
    const results = [];
    for (const comparer of this.#comparers) {
      results.push({ family: comparer.family, ...(await comparer.compare(view, signal)) });
      if (signal.aborted) return false;
    }
    if (!results.some(({ hasKubeProxy }) => hasKubeProxy)) {
      context.health.setWaiting("shadow", "kube-proxy has no rules on this node");
      if (!this.#isMissingLogged) context.log.error("kube-proxy has no rules on this node");
      this.#isMissingLogged = true;
      return false;
    }
    this.#isMissingLogged = false;
    this.#looks++;
    const found = results.flatMap(({ differences }) => differences);
    const change = this.#settled.take(found, performance.now());
    this.#present = change.present;
    for (const { family } of results) this.#metrics.set(family, change.present);
    for (const difference of change.appeared) this.#reported.add(differenceKey(difference));
    context.health.setReady("shadow");
    const isNews = change.appeared.length + change.gone.length > 0;
    // The first block also reports that there is no difference.
    if (!isNews && !(this.#isFirstBlock && !this.#settled.isSettling)) return true;
    this.#isFirstBlock = false;
    const packets = results.reduce((total, result) => total + result.packets, 0);
    const services = Math.max(...results.map((result) => result.services));
    print(formatChange(this.#format, new Date(), change, { packets, services }));
    return true;
  }
}
