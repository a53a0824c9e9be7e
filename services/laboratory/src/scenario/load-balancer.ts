import { publicAddress, web } from "./build.ts";
import { deletedAddress, droppedOrReset, everywhere, unknownAddressPort } from "./everywhere.ts";
import { clusterIP, externalIP, fromEach, loadBalancerIP, n1, nodeAddress, outside, pod, stranger } from "./packet.ts";
import { boundAddress, hosts, ranges } from "./places.ts";
import type { Scenario } from "./scenario.ts";

const served = { goesTo: ["b", "c"], source: "masqueraded" } as const;
const balancer = { to: loadBalancerIP("web"), port: 80 } as const;
const shut = { ...balancer, verdict: "silent", ...droppedOrReset } as const;

/** Load-balancer IPs and external IPs. */
export const loadBalancerScenarios: readonly Scenario[] = [
  {
    name: "a load-balancer IP",
    state: web(everywhere, ["b", "c"]),
    packets: [
      ...fromEach([outside, stranger, pod("a"), n1], { ...balancer, ...served }),
      { from: outside, to: nodeAddress, port: 30_080, ...served },
      { from: outside, to: loadBalancerIP("web"), port: 81, verdict: "untouched", ...unknownAddressPort },
      { from: outside, to: loadBalancerIP("web"), port: 30_080, verdict: "untouched", ...unknownAddressPort },
    ],
  },
  {
    name: "a load-balancer IP for some clients",
    state: web({ ...everywhere, sourceRanges: [ranges.outside] }, ["b", "c"]),
    packets: [
      { from: outside, ...balancer, ...served },
      ...fromEach([stranger, pod("a"), n1], shut),
      { from: stranger, to: nodeAddress, port: 30_080, ...served },
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
    ],
  },
  {
    name: "a load-balancer IP for all clients and some ranges",
    state: web({ ...everywhere, sourceRanges: [ranges.outside, ranges.everybody] }, ["b", "c"]),
    packets: fromEach([outside, stranger, pod("a")], { ...balancer, ...served }),
  },
  {
    name: "a load-balancer IP for the nodes",
    state: web({ ...everywhere, sourceRanges: [ranges.nodes] }, ["b", "c"]),
    packets: [{ from: n1, ...balancer, ...served }, ...fromEach([outside, pod("a")], shut)],
  },
  {
    // A node that has the address uses it as source address, too.
    name: "a load-balancer IP for the nodes, bound on the node",
    state: web({ ...everywhere, loadBalancerIPs: [boundAddress], sourceRanges: [ranges.nodes] }, ["b", "c"]),
    packets: [
      { from: n1, ...balancer, ...served },
      { from: outside, ...shut },
    ],
  },
  {
    name: "a load-balancer IP for other clients, bound on the node",
    state: web({ ...everywhere, loadBalancerIPs: [boundAddress], sourceRanges: [ranges.outside] }, ["b", "c"]),
    packets: [
      { from: n1, ...shut },
      { from: outside, ...balancer, ...served },
    ],
  },
  {
    name: "a load balancer that forwards to node ports",
    state: web({ ...everywhere, ipMode: "Proxy" }, ["b", "c"]),
    packets: [
      ...fromEach([outside, pod("a"), n1], { ...balancer, verdict: "untouched", ...deletedAddress }),
      { from: outside, to: nodeAddress, port: 30_080, ...served },
    ],
  },
  {
    name: "external IPs",
    state: web({ externalIPs: [publicAddress(20)] }, ["b", "c"]),
    packets: [
      ...fromEach([outside, pod("a"), n1], { to: externalIP("web"), port: 80, ...served }),
      { from: outside, to: externalIP("web"), port: 81, verdict: "untouched", ...unknownAddressPort },
    ],
  },
  {
    name: "an external IP that is the node's own",
    state: web({ externalIPs: [hosts.n1] }, ["b", "c"]),
    packets: [
      ...fromEach([outside, pod("a"), n1], { to: externalIP("web"), port: 80, ...served }),
      { from: outside, to: nodeAddress, port: 81, verdict: "untouched" },
    ],
  },
];
