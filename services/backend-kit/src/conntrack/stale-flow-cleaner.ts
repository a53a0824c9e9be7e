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

export interface StaleFlowCleanerOptions {
  readonly log: Log;
  readonly metrics: Registry;
  /** Default {@link createConntrackTool}. */
  readonly tool?: ConntrackTool | undefined;
}

export interface CleanRequest {
  /** The view whose rules now stand in the kernel. */
  readonly view: NodeView;
  /** Services that changed since the last call, deleted ones among them; "all" after a start or a full sync. */
  readonly changed: Iterable<ServiceKey> | "all";
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
}

export type CleanResult =
  /** No Service with a UDP port changed: nothing was run. */
  | { readonly kind: "not-needed" }
  | { readonly kind: "cleaned"; readonly deletedCount: number }
  /** The next call does it. */
  | { readonly kind: "failed"; readonly reason: string };

/**
 * Deletes the conntrack entries that would keep a UDP client at an endpoint that is gone: as long as the client sends,
 * such an entry never times out, and rules are only asked for new flows. TCP and SCTP are never touched.
 *
 * Call `clean` after each sync that succeeded. It remembers which frontends there were, so that flows of a Service that
 * was deleted or lost its last endpoint go too.
 */
export class StaleFlowCleaner {
  readonly #options: StaleFlowCleanerOptions;
  readonly #tool: ConntrackTool;
  readonly #metrics: ReturnType<typeof createMetrics>;
  #present: ReadonlySet<FrontendKey> = new Set();
  #udpServices: ReadonlySet<ServiceKey> = new Set();
  /** Not yet looked at: survives failures. */
  #gone = new Set<FrontendKey>();
  #isDue = false;
  #lastFailure = "";

  constructor(options: StaleFlowCleanerOptions) {
    this.#options = options;
    this.#tool = options.tool ?? createConntrackTool();
    this.#metrics = createMetrics(options.metrics);
  }

  /** Takes what was in force before this process began, so that flows of what went meanwhile are found. */
  seed(view: NodeView): void {
    this.#remember(view, udpFrontends(view).keys());
  }

  /** Never rejects: stale flows are no reason to call a sync failed. One call at a time. */
  async clean({ view, changed, isNodePortAddress }: CleanRequest, signal: AbortSignal): Promise<CleanResult> {
    if (!this.#isDue && !this.#concernsUdp(view, changed)) return { kind: "not-needed" };
    const present = udpFrontends(view);
    this.#remember(view, present.keys());
    const frontends = { present, gone: this.#gone, isNodePortAddress };
    let deletedCount = 0;
    try {
      for (const family of this.#familiesToLookAt()) {
        deletedCount += await this.#cleanFamily(family, frontends, signal);
      }
    } catch (error) {
      this.#isDue = true;
      // The process ends: whoever comes next looks through the whole table.
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

  #familiesToLookAt(): readonly Family[] {
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
    // A missing program stays missing: one line says so, not one for each sync.
    const said = error instanceof BackendError && error.code === "CONNTRACK_MISSING" ? error.code : reason;
    if (said !== this.#lastFailure) this.#options.log.error("stale udp flows stay", { reason });
    this.#lastFailure = said;
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
      help: "Duration of one look through the conntrack table for stale UDP flows",
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
      help: "Looks through the conntrack table that failed; each is repeated at the next sync",
      registers,
    }),
    isWorking: new Gauge({
      name: "kpng_backend_conntrack_working",
      help: "1 after a look through the conntrack table that succeeded, 0 after one that failed or before the first",
      registers,
    }),
  };
}
