import { named, publicAddress, together, web } from "../scenario/build.ts";
import { clusterIP, loadBalancerIP, n1, nodeAddress, outside, type Packet, pod } from "../scenario/packet.ts";
import type { Scenario } from "../scenario/scenario.ts";
import type { Way } from "./traffic.ts";

// One Service per external policy: Local keeps the client's address, which needs other rules in both directions.
const state = together(
  web({ ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] }, ["b", "c"]),
  named(
    "local",
    {
      number: 12,
      ports: [{ port: 80, nodePort: 30_081 }],
      loadBalancerIPs: [publicAddress(12)],
      external: "Local",
      healthCheckNodePort: 31_000,
    },
    ["a", "b", "d"],
  ),
);

const packets: readonly Packet[] = [
  { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
  { from: pod("b"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"] },
  { from: n1, to: clusterIP("web"), port: 80, goesTo: ["b", "c"] },
  { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b", "c"], source: "masqueraded" },
  { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" },
  { from: outside, to: nodeAddress, port: 30_081, goesTo: ["a", "b"], source: "kept" },
  { from: outside, to: loadBalancerIP("local"), port: 80, goesTo: ["a", "b"], source: "kept" },
  { from: n1, to: loadBalancerIP("local"), port: 80, goesTo: ["a", "b", "d"], source: "masqueraded" },
];

/** Scenario that must hold at every moment while proxies start, stop, are killed and replace each other. */
export const served: Scenario = {
  name: "served at every moment",
  state,
  packets,
  healthChecks: [{ port: 31_000, answer: { status: 200, localEndpoints: 2 } }],
};

/** Paths of the traffic in the meantime: every kind of frontend and client. */
export const servedWays: readonly Way[] = [
  { from: pod("a"), to: clusterIP("web"), port: 80 },
  { from: n1, to: clusterIP("web"), port: 80 },
  { from: outside, to: nodeAddress, port: 30_080 },
  { from: outside, to: loadBalancerIP("web"), port: 80 },
  { from: outside, to: nodeAddress, port: 30_081 },
  { from: outside, to: loadBalancerIP("local"), port: 80 },
];
