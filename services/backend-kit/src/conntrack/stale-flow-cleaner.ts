import { type Family, families } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { familyLabels, shortBuckets } from "../observe/family-labels.ts";
import { BackendError } from "../types/backend-error.ts";
import { type ConntrackTool, createConntrackTool } from "./conntrack-tool.ts";
import { type Frontends, isStale, StaleGroups } from "./stale-flows.ts";
import { type FrontendKey, familyOfFrontend, hasUdpPort, udpFrontends } from "./udp-frontends.ts";

/** Options of {@link StaleFlowCleaner}. */
export interface StaleFlowCleanerOptions {
  readonly log: Log;
  readonly metrics: Registry;
  /** Default {@link createConntrackTool}. */
  readonly tool?: ConntrackTool | undefined;
}

/** Argument of `StaleFlowCleaner.clean`. */
export interface CleanRequest {
  /** The view whose rules are installed now. */
  readonly view: NodeView;
  /** Services that changed since the last call, including deleted ones; "all" after a start or a full sync. */
  readonly changed: Iterable<ServiceKey> | "all";
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
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
 * entry does not time out while its client keeps sending. Entries of TCP and SCTP are never deleted.
 *
 * A proxy calls `clean` after each successful sync (`AfterCommit`). The cleaner remembers previous frontends (addresses
 * and ports at which Services answered), so that flows of deleted Services are deleted, too.
 */
export class StaleFlowCleaner {
  readonly #options: StaleFlowCleanerOptions;
  readonly #tool: ConntrackTool;
  readonly #metrics: ReturnType<typeof createMetrics>;
  #present: ReadonlySet<FrontendKey> = new Set();
  #udpServices: ReadonlySet<ServiceKey> = new Set();
  /** Previous frontends whose flows have not been examined; kept after a failure. */
  #gone = new Set<FrontendKey>();
  #isDue = false;
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
  async clean({ view, changed, isNodePortAddress }: CleanRequest, signal: AbortSignal): Promise<CleanResult> {
    if (!this.#isDue && !this.#concernsUdp(view, changed)) return { kind: "not-needed" };
    const present = udpFrontends(view);
    this.#remember(view, present.keys());
    const frontends = { present, gone: this.#gone, isNodePortAddress };
    let deletedCount = 0;
    try {
      for (const family of this.#familiesToClean()) {
        deletedCount += await this.#cleanFamily(family, frontends, signal);
      }
    } catch (error) {
      this.#isDue = true;
      // The process ends, and the next process examines the whole table at its start.
      return signal.aborted ? { kind: "failed", reason: "aborted" } : this.#fail(error);
    }
    this.#isDue = false;
    this.#gone = new Set();
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

  #familiesToClean(): readonly Family[] {
    const wanted = new Set([...this.#present, ...this.#gone].map(familyOfFrontend));
    return families.filter((family) => wanted.has(family));
  }

  async #cleanFamily(family: Family, frontends: Frontends, signal: AbortSignal): Promise<number> {
    const { log } = this.#options;
    const startMs = performance.now();
    const stale = new StaleGroups();
    await this.#tool.visitUdp(family, (flow) => isStale(flow, frontends) && stale.add(flow), signal);
    const deletedCount = await this.#tool.deleteUdp(stale.groups, signal);
    const elapsedMs = performance.now() - startMs;
    const labels = { ip_family: familyLabels[family] };
    this.#metrics.seconds.observe(labels, elapsedMs / 1_000);
    this.#metrics.deleted.inc(labels, deletedCount);
    if (deletedCount > 0)
      log.info("stale udp flows deleted", { family, deletedCount, elapsedMs: Math.round(elapsedMs) });
    return deletedCount;
  }

  #fail(error: unknown): CleanResult {
    const reason = reasonOf(error);
    // A missing program stays missing; log it once, not after each sync.
    const failure = error instanceof BackendError && error.code === "CONNTRACK_MISSING" ? error.code : reason;
    if (failure !== this.#lastFailure)
      this.#options.log.error("stale udp flows not deleted: trying again at the next sync", { reason });
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
      help: "Failed searches of the conntrack table for stale UDP flows; each is repeated at the next sync",
      registers,
    }),
    isWorking: new Gauge({
      name: "kpng_backend_conntrack_working",
      help: "1 if the last search of the conntrack table succeeded, 0 if it failed or before the first",
      registers,
    }),
  };
}
