import type { BackendContext } from "@kpng/backend-kit/backend/backend-command.ts";
import { StaleFlowCleaner } from "@kpng/backend-kit/conntrack/stale-flow-cleaner.ts";
import { HealthCheckServers, type ListenAddresses } from "@kpng/backend-kit/health-check/health-check-servers.ts";
import { readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { touchedServices } from "@kpng/backend-kit/state/touched-services.ts";
import type { SyncUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import type { Task } from "@kpng/process/task.ts";
import {
  type NodePortAddressRule,
  resolveNodePortAddresses,
  servesNodePorts,
} from "@kpng/service-plan/node-port-addresses.ts";

/** What a proxy does once its rules are in force: stale UDP flows are cut, and load balancers are told. */
export interface AfterSync {
  /** Takes the view that was in force before this process began. */
  seed(view: NodeView): void;
  /** Never rejects. */
  run(update: SyncUpdate, signal: AbortSignal): Promise<void>;
  /** Serves health checks; to be run beside the backend. */
  readonly serving: Task;
}

/** `nodePorts` says on which addresses node ports, and so health-check node ports, answer. */
export function afterSync(nodePorts: NodePortAddressRule, context: BackendContext): AfterSync {
  const { log, metrics, proxyHealth } = context;
  const cleaner = new StaleFlowCleaner({ log, metrics });
  const servers = new HealthCheckServers({ log, metrics, isProxyHealthy: () => proxyHealth?.isHealthy ?? true });
  return {
    seed: (view) => cleaner.seed(view),
    run: async (update, signal) => {
      const { view, mode, changes } = update;
      const addresses = { local: readLocalAddresses(), ofNode: view.node?.addresses ?? [] };
      const ofFamily = (family: Family) => resolveNodePortAddresses(nodePorts, family, addresses);
      const chosen: ListenAddresses = { v4: ofFamily("v4"), v6: ofFamily("v6") };
      const isNodePortAddress = (address: string): boolean => {
        const family = address.includes(":") ? "v6" : "v4";
        return servesNodePorts(address, chosen[family], addresses.local[family]);
      };
      const changed = mode === "full" ? "all" : touchedServices(changes);
      await cleaner.clean({ view, changed, isNodePortAddress }, signal);
      await servers.sync(view, chosen);
    },
    serving: { name: "backend/iptables/health-checks", run: (signal) => servers.run(signal) },
  };
}
