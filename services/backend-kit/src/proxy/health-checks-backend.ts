import type { Health } from "@kpng/process/health/health.ts";
import type { Task } from "@kpng/process/task.ts";
import { runWithMain } from "@kpng/process/task.ts";
import type { BackendCommand, BackendContext } from "../backend/backend-command.ts";
import { backendTask } from "../backend/backend-task.ts";
import { HealthCheckServers, listenAddresses } from "../health-check/health-check-servers.ts";
import { nodePortAddressesOption, parseNodePortAddresses } from "../node-addresses/local-addresses.ts";
import type { ParsedOptions } from "../types/parsed-options.ts";

const name = "healthchecks";

/**
 * The backend `to-healthchecks`: answers health-check node ports and does nothing else. For use beside a proxy that
 * does not answer them, or to see what load balancers get. It is in the list of built-in backends of the program
 * `kpng`, and has no package of its own, because `HealthCheckServers` does the work. Service proxies use that class in
 * `AfterCommit` instead.
 *
 * It reports the proxy as healthy if all other backends in the same process are healthy.
 */
export const healthChecksBackend: BackendCommand = {
  name,
  description: "answers the health checks of load balancers with external traffic policy Local",
  options: [nodePortAddressesOption],
  examples: `
Examples:
  COMMAND --api watcher.kube-system:12090
  COMMAND --nodeport-addresses primary
  curl -i http://NODE:HEALTH-CHECK-NODE-PORT/
`,
  makeTask,
};

function makeTask(options: ParsedOptions, context: BackendContext): Task {
  const { log, metrics, health } = context;
  const rule = parseNodePortAddresses((options.nodeportAddresses as readonly string[] | undefined) ?? []);
  const servers = new HealthCheckServers({ log, metrics, isProxyHealthy: () => areOthersHealthy(health) });
  const main = backendTask({
    ...context,
    name,
    onState: (view) => servers.sync({ view, addresses: () => listenAddresses(rule, view) }),
  });
  const serving: Task = { name: `backend/${name}/servers`, run: (signal) => servers.run(signal) };
  return { name: main.name, run: (signal) => runWithMain(main, [serving], signal) };
}

/**
 * Whether all other backends of the process are healthy. The health of this backend does not count: a port that cannot
 * be opened must not remove the other Services from this node.
 */
function areOthersHealthy(health: Health): boolean {
  return [...health.parts].every(([part, { isHealthy }]) => part === name || isHealthy);
}
