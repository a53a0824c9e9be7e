import { draining, type EndpointOption, publicAddress, web } from "../build.ts";
import type { Scenario } from "../scenario.ts";

const port = 32_000;

function checked(
  name: string,
  endpoints: readonly EndpointOption[],
  status: 200 | 503,
  localEndpoints: number,
): Scenario {
  return {
    name: `health-check node port, ${name}`,
    state: web(
      {
        ports: [{ port: 80, nodePort: 30_080 }],
        loadBalancerIPs: [publicAddress(10)],
        external: "Local",
        healthCheckNodePort: port,
      },
      endpoints,
    ),
    packets: [],
    healthChecks: [{ port, answer: { status, localEndpoints } }],
  };
}

/** Health-check node ports, by which a load balancer finds the nodes with endpoints. */
export const healthCheckScenarios: readonly Scenario[] = [
  checked("two endpoints on the node", ["a", "b", "c"], 200, 2),
  checked("no endpoint on the node", ["c", "d"], 503, 0),
  // The load balancer stops sending while the terminating endpoint still serves.
  checked("a terminating endpoint", [draining("a"), "c"], 503, 0),
  checked("no endpoint at all", [], 503, 0),
  {
    name: "no health-check node port with external policy Cluster",
    state: web({ ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] }, ["a"]),
    packets: [],
    healthChecks: [{ port, answer: undefined }],
  },
];
