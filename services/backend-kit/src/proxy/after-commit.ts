import { availableParallelism } from "node:os";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Task } from "@kpng/process/task.ts";
import { type NodePortAddressRule, servesNodePorts } from "@kpng/service-plan/plan-node.ts";
import type { BackendContext } from "../backend/backend-command.ts";
import { applySettings, wantedSettings } from "../conntrack/conntrack-settings.ts";
import { FlowCleaning, StaleFlowCleaner } from "../conntrack/stale-flow-cleaner.ts";
import { hasUdpPort, type UdpListeners } from "../conntrack/udp-flows.ts";
import { loadView } from "../disk/view-file.ts";
import type { StateOptions } from "../disk/view-keeper.ts";
import { HealthCheckServers, listenAddresses } from "../health-check/health-check-servers.ts";
import type { Sysctls } from "../sysctl/sysctls.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { SyncUpdate } from "../types/sync-update.ts";

/** Options of {@link AfterCommit}. */
interface AfterCommitOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly nodePorts: NodePortAddressRule;
  readonly context: BackendContext;
  readonly state: StateOptions | undefined;
  readonly sysctls: Sysctls;
  /** Reads the node's own addresses. */
  readonly localAddresses: () => AddressSet;
  /** Parsed `conntrackOptions`. */
  readonly options: ParsedOptions;
  /** See `ServiceProxy.carriesTraffic`. */
  readonly carriesTraffic: boolean;
  /** See `OpenRuleSets.udpListeners`. */
  readonly udpListeners: (() => UdpListeners) | undefined;
}

/**
 * The work of a service proxy that follows each successful sync: it sets the limits of conntrack, deletes stale UDP
 * flows, and answers the health checks of load balancers. None of this work may delay or fail a sync.
 */
export class AfterCommit {
  readonly #options: AfterCommitOptions;
  readonly #cleaner: StaleFlowCleaner;
  readonly #cleaning: FlowCleaning;
  readonly #cleansFlows: boolean;
  readonly #servers: HealthCheckServers;

  constructor(options: AfterCommitOptions) {
    const { log, metrics, health, proxyHealth, errorDelayMs } = options.context;
    this.#options = options;
    const { carriesTraffic, udpListeners } = options;
    this.#cleansFlows = !carriesTraffic || udpListeners !== undefined;
    this.#cleaner = new StaleFlowCleaner({ log, metrics, listeners: udpListeners });
    this.#cleaning = new FlowCleaning({
      cleaner: this.#cleaner,
      health,
      errorDelayMs,
      prepare: () => this.#setConntrackLimits(),
    });
    this.#servers = new HealthCheckServers({
      log,
      metrics,
      isProxyHealthy: (family) => proxyHealth?.isFamilyHealthy(family) ?? true,
      // Healthy in any case: one port that another program uses must not take the node off all load balancers.
      onFailures: (reasons) =>
        health.set("health-checks", { isHealthy: true, isReady: true, reason: reasons.join("; ") }),
    });
    health.setReady("health-checks");
  }

  /** Answers health checks and searches for stale flows; run it beside the sync loop. */
  get tasks(): readonly Task[] {
    const { name } = this.#options;
    return [
      { name: `backend/${name}/health-checks`, run: (signal) => this.#servers.run(signal) },
      ...(this.#cleansFlows
        ? [{ name: `backend/${name}/conntrack`, run: (signal: AbortSignal) => this.#cleaning.run(signal) }]
        : []),
    ];
  }

  /**
   * Reads the saved view: UDP flows of Services that were deleted while this program did not run are stale, too. Not
   * after a reboot, because no flow is older than the kernel.
   */
  async seed(): Promise<void> {
    const { state, context } = this.#options;
    if (state?.folder === undefined || !this.#cleansFlows) return;
    const { nodeName, serviceProxyName } = context;
    const { folder } = state;
    const nowMs = Date.now();
    const loaded = await loadView({ folder, nodeName, serviceProxyName, nowMs, only: hasUdpPort });
    if (loaded.kind === "view" && !loaded.isAfterReboot) this.#cleaner.seed(loaded.update.view);
  }

  /** Announces a view before its rules are installed. */
  expect({ view }: SyncUpdate): void {
    this.#cleaning.expect(view);
  }

  /** Begins the work for families whose rules are in force. Never rejects; resolves when health checks are answered. */
  async run(
    update: SyncUpdate,
    families: readonly Family[],
    cleanedFamilies: readonly Family[] = families,
  ): Promise<void> {
    if (families.length === 0) return;
    const { view, mode, touched } = update;
    const { nodePorts, localAddresses } = this.#options;
    const changed = mode === "full" ? "all" : touched;
    if (this.#cleansFlows && cleanedFamilies.length > 0) this.#cleanFlows(view, changed, cleanedFamilies);
    const addresses = () => listenAddresses(nodePorts, view, localAddresses());
    await this.#servers.sync({ view, addresses, families, changed });
  }

  /** Requests a search for stale flows. */
  #cleanFlows(view: NodeView, changed: ReadonlySet<ServiceKey> | "all", families: readonly Family[]): void {
    const { nodePorts, localAddresses } = this.#options;
    const read = () => {
      const local = localAddresses();
      return { local, chosen: listenAddresses(nodePorts, view, local) };
    };
    // Once for all flows, because the table may have a million of them; not at all if no flow is examined.
    let addresses: ReturnType<typeof read> | undefined;
    const isNodePortAddress = (address: string): boolean => {
      addresses ??= read();
      const family = address.includes(":") ? "v6" : "v4";
      return servesNodePorts(address, addresses.chosen[family], addresses.local[family]);
    };
    this.#cleaning.offer({ view, changed, isNodePortAddress, families });
  }

  /** Resolves when no search for stale flows is running; for a run that ends by itself. */
  settled(signal: AbortSignal): Promise<void> {
    return this.#cleaning.settled(signal);
  }

  /** Sets the limits of conntrack. Only the default instance does so, because the limits apply to the whole node. */
  async #setConntrackLimits(): Promise<void> {
    const { options, context, sysctls, carriesTraffic } = this.#options;
    if (context.serviceProxyName !== "" || carriesTraffic) return;
    await applySettings(wantedSettings(options, availableParallelism()), { sysctls, log: context.log });
  }
}
