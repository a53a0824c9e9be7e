import type { Family } from "@kpng/model/address.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { Backoff } from "@kpng/process/clock.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { Wakeup, waitMs } from "@kpng/process/wait.ts";
import { Counter, Histogram, type Registry } from "prom-client";
import { familyLabels, shortBuckets } from "../observe/proxy-metrics.ts";
import {
  type ConntrackTool,
  createConntrackTool,
  type FrontendKey,
  type Frontends,
  familyOfFrontend,
  groupOf,
  hasUdpFrontend,
  isStale,
  type UdpFlow,
  type UdpListeners,
  udpFrontends,
} from "./udp-flows.ts";

interface StaleFlowCleanerOptions {
  readonly log: Log;
  readonly metrics: Registry;
  readonly health: Health;
  /** First delay after a failure, in milliseconds; it doubles up to 30 s. */
  readonly errorDelayMs: number;
  readonly families: readonly Family[];
  /** The listeners of a proxy that carries traffic. Default: none. */
  readonly listeners?: (() => UdpListeners) | undefined;
  /** See `RuleSet`. Default false. */
  readonly servesWholeAddresses?: boolean | undefined;
  readonly tool?: ConntrackTool | undefined;
}

/** A request to search the conntrack table, made when the rules for a view have been installed. */
interface CleanRequest {
  readonly view: NodeView;
  /** Services that changed since the last request, including deleted ones; "all" after a start or a full sync. */
  readonly changed: ReadonlySet<ServiceKey> | "all";
  /** True for an address of this node on which node ports are served. */
  readonly isNodePortAddress: (address: string) => boolean;
  /** Families whose rules are installed; flows of the other family wait for a later request. */
  readonly families: readonly Family[];
}

const healthPart = "conntrack";

/**
 * Deletes conntrack entries that send a UDP client to an endpoint that is gone. Rules apply only to new flows, and an
 * entry does not time out while its client keeps sending. TCP and SCTP entries are never deleted.
 *
 * It runs concurrently with the sync loop, because reading a large conntrack table takes seconds and rules must not
 * wait for that. It remembers previous frontends (addresses and ports at which Services answered), so that it also
 * deletes the flows of deleted Services. A failure is reported as the reason of the health part "conntrack", which
 * stays healthy because rules do not depend on it, and the search is repeated with backoff.
 *
 * *Bound:* one request; requests that arrive during a search are merged.
 */
export class StaleFlowCleaner {
  readonly #options: StaleFlowCleanerOptions;
  readonly #tool: ConntrackTool;
  readonly #metrics: ReturnType<typeof createMetrics>;
  readonly #arrived = new Wakeup();
  #pending: CleanRequest | undefined;
  /** View of the newest rules that are installed or about to be. */
  #newest: NodeView | undefined;
  /** UDP frontends and Services of the last request's view. */
  #present: ReadonlySet<FrontendKey> = new Set();
  #udpServices: ReadonlySet<ServiceKey> = new Set();
  /** Previous frontends whose flows have not been examined; kept after a failure. */
  #gone = new Set<FrontendKey>();
  readonly #due = new Set<Family>();

  constructor(options: StaleFlowCleanerOptions) {
    this.#options = options;
    this.#tool = options.tool ?? createConntrackTool();
    this.#metrics = createMetrics(options.metrics);
    options.health.setReady(healthPart);
  }

  /** Announces a view whose rules are about to be installed, so that no flow that these rules use is deleted. */
  expect(view: NodeView): void {
    this.#newest = view;
  }

  /** Requests a search. Requests that arrive during a search are merged. */
  offer(request: CleanRequest): void {
    const { changed } = this.#pending ?? request;
    const isAll = changed === "all" || request.changed === "all";
    this.#pending = { ...request, changed: isAll ? "all" : changed.union(request.changed) };
    this.#arrived.wake();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { errorDelayMs } = this.#options;
    const backoff = new Backoff({ minMs: errorDelayMs, maxMs: Math.max(30_000, errorDelayMs) });
    while (!signal.aborted) {
      const request = this.#pending;
      this.#pending = undefined;
      if (request === undefined) await this.#arrived.wait(signal);
      else if (await this.search(request, signal)) backoff.reset();
      else {
        await waitMs(backoff.nextMs(), signal);
        // `changed` can be empty, because `#due` and `#gone` remember what is not yet examined.
        this.offer({ ...(this.#pending ?? request), changed: new Set() });
      }
    }
  }

  /**
   * Searches once. Returns false if that failed; the next search then includes what this one should have examined.
   * Never rejects. Calls must not overlap.
   */
  async search(request: CleanRequest, signal: AbortSignal): Promise<boolean> {
    const { view, changed, families: inForce } = request;
    const { families, health } = this.#options;
    const isConcerned = this.#concernsUdp(view, changed);
    if (!isConcerned && this.#due.size === 0) return true;
    const present = this.#udpFrontends(view);
    const now = new Set([...present.keys()].filter((frontend) => families.includes(familyOfFrontend(frontend))));
    this.#gone = this.#gone.union(this.#present).difference(now);
    this.#present = now;
    this.#udpServices = new Set([...view.services].filter(([, service]) => this.#hasUdp(service)).map(([key]) => key));
    if (isConcerned) for (const family of families) this.#due.add(family);
    try {
      for (const family of [...this.#due].filter((one) => inForce.includes(one))) {
        const isOfFamily = (frontend: FrontendKey): boolean => familyOfFrontend(frontend) === family;
        const hasFrontends = [...this.#present, ...this.#gone].some(isOfFamily);
        if (hasFrontends) await this.#cleanFamily(family, request, present, signal);
        this.#due.delete(family);
        this.#gone = new Set([...this.#gone].filter((frontend) => !isOfFamily(frontend)));
      }
    } catch (error) {
      // A process that is ending leaves the table to its successor, which examines all of it when it starts.
      if (!signal.aborted) this.#reportFailure(reasonOf(error));
      return false;
    }
    health.setReady(healthPart);
    return true;
  }

  #concernsUdp(view: NodeView, changed: ReadonlySet<ServiceKey> | "all"): boolean {
    const keys = changed === "all" ? [...this.#udpServices, ...view.services.keys()] : [...changed];
    return keys.some((key) => this.#udpServices.has(key) || this.#hasUdp(view.services.get(key)));
  }

  #hasUdp(service: ServiceView | undefined): boolean {
    return hasUdpFrontend(service, this.#options.servesWholeAddresses === true);
  }

  #udpFrontends(view: NodeView): Frontends["present"] {
    return udpFrontends(view, this.#options.listeners?.(), this.#options.servesWholeAddresses === true);
  }

  async #cleanFamily(
    family: Family,
    { view, isNodePortAddress }: CleanRequest,
    present: Frontends["present"],
    signal: AbortSignal,
  ): Promise<void> {
    const startMs = performance.now();
    const frontends = { present, gone: this.#gone, isNodePortAddress, listeners: this.#options.listeners?.() };
    const stale = new Map<string, UdpFlow>();
    await this.#tool.visitUdp(family, (flow) => isStale(flow, frontends) && stale.set(groupOf(flow), flow), signal);
    // New rules may have been installed during the search; flows that began under them must stay.
    const latest = this.#newest ?? view;
    const newer = () => ({ listeners: this.#options.listeners?.(), present: this.#udpFrontends(latest) });
    const current = latest === view ? frontends : { ...frontends, ...newer() };
    const groups = [...stale.values()].filter((flow) => isStale(flow, current));
    const count = await this.#tool.deleteUdp(groups, signal);
    const elapsedMs = performance.now() - startMs;
    const labels = { ip_family: familyLabels[family] };
    this.#metrics.deleted.inc(labels, count);
    this.#metrics.seconds.observe(labels, elapsedMs / 1_000);
    if (count > 0) {
      const fields = { family, deletedCount: count, elapsedMs: Math.round(elapsedMs) };
      this.#options.log.info("stale udp flows deleted", fields);
    }
  }

  #reportFailure(reason: string): void {
    const { health, log } = this.#options;
    // If the program is missing, every search fails in the same way; log that once, not after each sync.
    const isKnown = health.parts.get(healthPart)?.reason === reason;
    if (!isKnown) log.error("stale udp flows not deleted: trying again", { reason });
    health.set(healthPart, { isHealthy: true, isReady: true, reason });
    this.#metrics.failures.inc();
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
  };
}
