import { availableParallelism } from "node:os";
import type { AddressSet, Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { Task } from "@kpng/process/task.ts";
import { selectsAddress } from "@kpng/service-plan/plan-node.ts";
import { applySettings, desiredSettings } from "../conntrack/conntrack-settings.ts";
import { StaleFlowCleaner } from "../conntrack/stale-flow-cleaner.ts";
import { HealthCheckServers, type ListenAddresses, listenAddresses } from "../health-check/health-check-servers.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import type { OpenRuleSets, ProxyRun, ServiceProxy } from "./proxy-spec.ts";

type CommittedRun = Omit<ProxyRun, "proxy"> & { readonly proxy: Pick<ServiceProxy, "carriesTraffic"> };

/** Addresses of the node; node ports answer at those in `chosen`. */
interface NodeAddresses {
  readonly local: AddressSet;
  readonly chosen: ListenAddresses;
}

/**
 * The work after each successful sync: conntrack's limits, stale UDP flows, and health checks from load balancers. None
 * of it may delay a sync or make it fail.
 */
export class AfterCommit {
  readonly #run: CommittedRun;
  /** Undefined if conntrack has no client flows to clean. */
  readonly #cleaner: StaleFlowCleaner | undefined;
  readonly #servers: HealthCheckServers;
  #hasLimits = false;

  constructor(
    run: CommittedRun,
    { udpListeners: listeners, ruleSets }: Pick<OpenRuleSets, "udpListeners" | "ruleSets">,
  ) {
    const { log, metrics, health, proxyHealth, errorDelayMs } = run.context;
    this.#run = run;
    const families = ruleSets.map(({ family }) => family);
    const servesWholeAddresses = ruleSets.some((ruleSet) => ruleSet.servesWholeAddresses === true);
    const cleaning = { log, metrics, health, errorDelayMs, listeners, servesWholeAddresses, families };
    const hasFlows = run.proxy.carriesTraffic !== true || listeners !== undefined;
    this.#cleaner = hasFlows ? new StaleFlowCleaner(cleaning) : undefined;
    this.#servers = new HealthCheckServers({
      log,
      metrics,
      isProxyHealthy: (family) => proxyHealth?.isFamilyHealthy(family) ?? true,
      // This part always counts as healthy: one port that another program uses must not remove the node from all load
      // balancers.
      onFailures: (reasons) =>
        health.set("health-checks", { isHealthy: true, isReady: true, reason: reasons.join("; ") }),
    });
    health.setReady("health-checks");
  }

  get tasks(): readonly Task[] {
    const parts = { "health-checks": this.#servers, conntrack: this.#cleaner };
    return Object.entries(parts).flatMap(([name, part]) => {
      if (part === undefined) return [];
      return { name: `backend/${this.#run.name}/${name}`, run: (signal: AbortSignal) => part.run(signal) };
    });
  }

  /** Announces a view before its rules are installed. */
  expect({ view }: SyncUpdate): void {
    this.#cleaner?.expect(view);
  }

  /** Begins the work for families whose rules are in force. Never rejects; resolves when health checks are answered. */
  async run(update: SyncUpdate, families: readonly Family[], signal: AbortSignal): Promise<void> {
    if (families.length === 0) return;
    const { view, mode, touched, isFromDisk = false } = update;
    const changed = mode === "full" ? ("all" as const) : touched;
    const addresses = () => this.#addresses(view).chosen;
    await this.#servers.sync({ view, addresses, families, changed });
    // Do not clean flows for a saved view, because the rules in force may be newer.
    if (this.#cleaner === undefined || isFromDisk) return;
    const limits = this.#setConntrackLimits();
    const request = { view, changed, families, isNodePortAddress: this.#nodePortAddressOf(view) };
    // With `--once`, set the limits and search before the process ends.
    if (this.#run.context.isOnce) await Promise.all([limits, this.#cleaner.search(request, signal)]);
    else this.#cleaner.offer(request);
  }

  /** Returns a function that tells whether node ports answer at an address. */
  #nodePortAddressOf(view: NodeView): (address: string) => boolean {
    // Read the addresses once for all flows, because the table may have a million of them, and only if a flow is
    // examined.
    let addresses: NodeAddresses | undefined;
    return (address) => {
      addresses ??= this.#addresses(view);
      const family = address.includes(":") ? "v6" : "v4";
      return selectsAddress(address, addresses.chosen[family], addresses.local[family]);
    };
  }

  #addresses(view: NodeView): NodeAddresses {
    const { settings, localAddresses } = this.#run.host;
    const local = localAddresses();
    return { local, chosen: listenAddresses(settings.nodePortAddresses, view, local) };
  }

  /**
   * Sets conntrack's limits, once. They apply to the whole node, so only the default instance sets them, and not for a
   * proxy that carries the traffic itself.
   */
  async #setConntrackLimits(): Promise<void> {
    const { options, context, host, proxy } = this.#run;
    if (this.#hasLimits) return;
    this.#hasLimits = true;
    if (context.serviceProxyName !== "" || proxy.carriesTraffic === true) return;
    await applySettings(desiredSettings(options, availableParallelism()), host.sysctls, context.log);
  }
}
