import { availableParallelism } from "node:os";
import type { Task } from "@kpng/process/task.ts";
import { type NodePortAddressRule, servesNodePorts } from "@kpng/service-plan/node-port-addresses.ts";
import type { BackendContext } from "../backend/backend-command.ts";
import { applySettings } from "../conntrack/apply-settings.ts";
import { wantedSettings } from "../conntrack/conntrack-settings.ts";
import { StaleFlowCleaner } from "../conntrack/stale-flow-cleaner.ts";
import { hasUdpPort } from "../conntrack/udp-frontends.ts";
import { loadView } from "../disk/load-view.ts";
import type { StateOptions } from "../disk/state-folder.ts";
import { HealthCheckServers } from "../health-check/health-check-servers.ts";
import { listenAddresses } from "../health-check/listen-addresses.ts";
import { readLocalAddresses } from "../node-addresses/local-addresses.ts";
import { touchedServices } from "../state/touched-services.ts";
import type { Sysctls } from "../sysctl/sysctls.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";
import type { SyncUpdate } from "../types/sync-update.ts";

/** Options of {@link AfterCommit}. */
export interface AfterCommitOptions {
  /** Name of the backend. */
  readonly name: string;
  readonly nodePorts: NodePortAddressRule;
  readonly context: BackendContext;
  readonly state: StateOptions | undefined;
  readonly sysctls: Sysctls;
  /** Parsed `conntrackOptions`. */
  readonly options: ParsedOptions;
}

/**
 * The work of a service proxy that follows each successful sync: it sets the limits of conntrack, deletes stale UDP
 * flows, and answers the health checks of load balancers. `serveTask` creates one and calls it after each commit.
 */
export class AfterCommit {
  readonly #options: AfterCommitOptions;
  readonly #cleaner: StaleFlowCleaner;
  readonly #servers: HealthCheckServers;
  #isFirst = true;

  constructor(options: AfterCommitOptions) {
    const { log, metrics, proxyHealth } = options.context;
    this.#options = options;
    this.#cleaner = new StaleFlowCleaner({ log, metrics });
    this.#servers = new HealthCheckServers({ log, metrics, isProxyHealthy: () => proxyHealth?.isHealthy ?? true });
  }

  /** Answers health checks; runs beside the backend. */
  get serving(): Task {
    return { name: `backend/${this.#options.name}/health-checks`, run: (signal) => this.#servers.run(signal) };
  }

  /**
   * Reads the saved view, because flows of Services that were deleted while this program did not run are stale, too.
   */
  async seed(): Promise<void> {
    const { state, context } = this.#options;
    if (state?.folder === undefined) return;
    const { nodeName, serviceProxyName } = context;
    const { folder, maxAgeMs } = state;
    const nowMs = Date.now();
    const loaded = await loadView({ folder, maxAgeMs, nodeName, serviceProxyName, nowMs, only: hasUdpPort });
    if (loaded.kind === "view") this.#cleaner.seed(loaded.update.view);
  }

  /** Does the work that an update requires, after its rules are installed. Never rejects. */
  async run(update: SyncUpdate, signal: AbortSignal): Promise<void> {
    const { view, mode, changes } = update;
    const { options, context, sysctls, nodePorts } = this.#options;
    // Only the default instance sets conntrack limits, which apply to the whole node; and only after the first rules:
    // the kernel loads conntrack with the first rule that needs it.
    if (this.#isFirst && context.serviceProxyName === "") {
      await applySettings(wantedSettings(options, availableParallelism()), { sysctls, log: context.log });
    }
    this.#isFirst = false;
    const chosen = listenAddresses(nodePorts, view);
    // Read once for all flows, because the table may have a million of them.
    const local = readLocalAddresses();
    const isNodePortAddress = (address: string): boolean => {
      const family = address.includes(":") ? "v6" : "v4";
      return servesNodePorts(address, chosen[family], local[family]);
    };
    const changed = mode === "full" ? "all" : touchedServices(changes);
    await this.#cleaner.clean({ view, changed, isNodePortAddress }, signal);
    await this.#servers.sync({ view, addresses: () => listenAddresses(nodePorts, view) });
  }
}
