import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { familyLabels, shortBuckets } from "../observe/proxy-metrics.ts";
import { BackendError } from "../types/backend-error.ts";
import { type ConntrackTool, createConntrackTool } from "./conntrack-tool.ts";
import { type Frontends, isStale, StaleGroups } from "./stale-flows.ts";
import { type FrontendKey, familyOfFrontend, hasUdpPort, type UdpListeners, udpFrontends } from "./udp-frontends.ts";

/** Options of {@link StaleFlowCleaner}. */
export interface StaleFlowCleanerOptions {
  readonly log: Log;
  readonly metrics: Registry;
  /** Default {@link createConntrackTool}. */
  readonly tool?: ConntrackTool | undefined;
  /** Returns the listeners of a proxy that carries traffic, as they are now. Default: none. */
  readonly listeners?: (() => UdpListeners) | undefined;
}

/** Argument of `StaleFlowCleaner.clean`. */
export interface CleanRequest {
  /** The view whose rules are installed now. */
  readonly view: NodeView;
  /** Services that changed since the last call, including deleted ones; "all" after a start or a full sync. */
  readonly changed: Iterable<ServiceKey> | "all";
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
  /** Families whose rules are installed; flows of the others wait for a later call. Default both. */
  readonly families?: readonly Family[] | undefined;
  /**
   * Returns the newest view, whose rules may have been installed since the call. It is asked before each deletion, and
   * flows that it needs are kept. Default: `view`.
   */
  readonly newest?: (() => NodeView) | undefined;
}

/**
 * Number of groups of stale flows in one call of `ConntrackTool.deleteUdp`. Deleting hundreds of groups takes seconds,
 * so it is checked again before each call which of them are still stale.
 */
const groupsPerDeletion = 50;

interface CleanedView {
  readonly frontends: Frontends;
  readonly view: NodeView;
  readonly newest: () => NodeView;
}

/** Result of `StaleFlowCleaner.clean`. */
export type CleanResult =
  /** No Service with a UDP port changed; the table was not read. */
  | { readonly kind: "not-needed" }
  | { readonly kind: "cleaned"; readonly deletedCount: number }
  /** The next call tries again. */
  | { readonly kind: "failed"; readonly reason: string };

/**
 * Deletes conntrack entries that send a UDP client to an endpoint that is gone. Rules apply to new flows only, and an
 * entry does not time out while its client keeps sending. Entries of TCP and SCTP are never deleted. It combines three
 * parts: `ConntrackTool` reads and deletes entries, `udpFrontends` knows where Services answer, and `isStale` decides
 * about each entry.
 *
 * `FlowCleaning` decides when to call `clean`: after syncs. The cleaner remembers previous frontends (addresses and
 * ports at which Services answered), so that flows of deleted Services are deleted, too.
 */
export class StaleFlowCleaner {
  readonly #options: StaleFlowCleanerOptions;
  readonly #tool: ConntrackTool;
  readonly #metrics: ReturnType<typeof createMetrics>;
  #present: ReadonlySet<FrontendKey> = new Set();
  #udpServices: ReadonlySet<ServiceKey> = new Set();
  /** Previous frontends whose flows have not been examined; kept after a failure. */
  #gone = new Set<FrontendKey>();
  /** Families whose flows must be examined. */
  readonly #due = new Set<Family>();
  #lastFailure = "";

  constructor(options: StaleFlowCleanerOptions) {
    this.#options = options;
    this.#tool = options.tool ?? createConntrackTool();
    this.#metrics = createMetrics(options.metrics);
  }

  /** Sets the view of the previous run, so that flows of Services deleted since then are found. */
  seed(view: NodeView): void {
    this.#remember(view, udpFrontends(view).keys());
  }

  /** Never rejects, because stale flows must not make a sync fail. Calls must not overlap. */
  async clean(request: CleanRequest, signal: AbortSignal): Promise<CleanResult> {
    const { view, changed, isNodePortAddress, families: inForce = families, newest = () => view } = request;
    const isConcerned = this.#concernsUdp(view, changed);
    if (!isConcerned && this.#due.size === 0) return { kind: "not-needed" };
    const listeners = this.#options.listeners?.();
    const present = udpFrontends(view, listeners);
    this.#remember(view, present.keys());
    if (isConcerned) for (const family of families) this.#due.add(family);
    let deletedCount = 0;
    try {
      for (const family of [...this.#due].filter((one) => inForce.includes(one))) {
        const frontends = { present, gone: this.#gone, isNodePortAddress, listeners };
        const isNeeded = this.#hasFrontends(family);
        if (isNeeded) deletedCount += await this.#cleanFamily(family, { frontends, view, newest }, signal);
        this.#due.delete(family);
        this.#gone = new Set([...this.#gone].filter((frontend) => familyOfFrontend(frontend) !== family));
      }
    } catch (error) {
      // The process ends, and the next process examines the whole table at its start.
      return signal.aborted ? { kind: "failed", reason: "aborted" } : this.#fail(error);
    }
    this.#lastFailure = "";
    this.#metrics.isWorking.set(1);
    return { kind: "cleaned", deletedCount };
  }

  #concernsUdp(view: NodeView, changed: Iterable<ServiceKey> | "all"): boolean {
    if (changed === "all") return this.#udpServices.size > 0 || [...view.services.values()].some(hasUdpPort);
    for (const key of changed) if (this.#udpServices.has(key) || hasUdpPort(view.services.get(key))) return true;
    return false;
  }

  #remember(view: NodeView, present: Iterable<FrontendKey>): void {
    const now = new Set(present);
    this.#gone = this.#gone.union(this.#present).difference(now);
    this.#present = now;
    this.#udpServices = new Set([...view.services].filter(([, service]) => hasUdpPort(service)).map(([key]) => key));
  }

  #hasFrontends(family: Family): boolean {
    return [...this.#present, ...this.#gone].some((frontend) => familyOfFrontend(frontend) === family);
  }

  async #cleanFamily(family: Family, { frontends, view, newest }: CleanedView, signal: AbortSignal): Promise<number> {
    const { log } = this.#options;
    const startMs = performance.now();
    const stale = new StaleGroups();
    await this.#tool.visitUdp(family, (flow) => isStale(flow, frontends) && stale.add(flow), signal);
    const { groups } = stale;
    const labels = { ip_family: familyLabels[family] };
    // The series exists before the first flow is deleted.
    this.#metrics.deleted.inc(labels, 0);
    let deletedCount = 0;
    let decided: CleanedView = { frontends, view, newest };
    for (let at = 0; at < groups.length; at += groupsPerDeletion) {
      // Rules may have been installed during the search or the last deletion, and flows that began with them must stay.
      const latest = newest();
      if (latest !== decided.view) {
        const listeners = this.#options.listeners?.();
        const present = udpFrontends(latest, listeners);
        decided = { frontends: { ...frontends, present, listeners }, view: latest, newest };
      }
      const chunk = groups.slice(at, at + groupsPerDeletion);
      const due = decided.view === view ? chunk : chunk.filter((flow) => isStale(flow, decided.frontends));
      const count = await this.#tool.deleteUdp(due, signal);
      // At once, because the next deletion may fail.
      this.#metrics.deleted.inc(labels, count);
      deletedCount += count;
    }
    const elapsedMs = performance.now() - startMs;
    this.#metrics.seconds.observe(labels, elapsedMs / 1_000);
    if (deletedCount > 0)
      log.info("stale udp flows deleted", { family, deletedCount, elapsedMs: Math.round(elapsedMs) });
    return deletedCount;
  }

  #fail(error: unknown): CleanResult {
    const reason = reasonOf(error);
    // A missing program stays missing; log it once, not after each sync.
    const failure = error instanceof BackendError && error.code === "CONNTRACK_MISSING" ? error.code : reason;
    if (failure !== this.#lastFailure) this.#options.log.error("stale udp flows not deleted: trying again", { reason });
    this.#lastFailure = failure;
    this.#metrics.failures.inc();
    this.#metrics.isWorking.set(0);
    return { kind: "failed", reason };
  }
}

function createMetrics(registry: Registry) {
  const registers = [registry];
  const labelNames = ["ip_family"] as const;
  return {
    seconds: new Histogram({
      name: "kubeproxy_conntrack_reconciler_sync_duration_seconds",
      help: "Duration of a search of the conntrack table for stale UDP flows, and of their deletion",
      labelNames,
      buckets: [...shortBuckets],
      registers,
    }),
    deleted: new Counter({
      name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
      help: "Stale UDP flows deleted",
      labelNames,
      registers,
    }),
    failures: new Counter({
      name: "kpng_backend_conntrack_failures_total",
      help: "Failed searches of the conntrack table for stale UDP flows; each is repeated with backoff",
      registers,
    }),
    isWorking: new Gauge({
      name: "kpng_backend_conntrack_working",
      help: "1 if the last search of the conntrack table succeeded, 0 if it failed or before the first",
      registers,
    }),
  };
}
