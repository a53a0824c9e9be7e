import { web } from "./build.ts";
import { droppedOrReset, everywhere, loopbackNodePort } from "./everywhere.ts";
import {
  clusterIP,
  fromEach,
  loadBalancerIP,
  localhost,
  n1,
  neighbour,
  nodeAddress,
  outside,
  type Packet,
  pod,
} from "./packet.ts";
import type { Scenario, Settings } from "./scenario.ts";

const toBoth = { goesTo: ["a", "b"] } as const;

/** Both endpoints are on the node, because replies to an unmasqueraded client must pass through it. */
function detected(name: string, detectLocal: NonNullable<Settings["detectLocal"]>): Scenario {
  return {
    name: `pods are detected by ${name}`,
    settings: { detectLocal },
    state: web({ ...everywhere, external: "Local" }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      ...fromEach([n1, outside], { to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" }),
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b"], source: "kept" },
    ],
  };
}

const external: readonly Packet[] = [
  { from: outside, to: nodeAddress, port: 30_080, ...toBoth, source: "masqueraded" },
  { from: outside, to: loadBalancerIP("web"), port: 80, ...toBoth, source: "masqueraded" },
];

/** Masquerading, with masquerade-all and with the ways to detect local pods. */
export const masqueradeScenarios: readonly Scenario[] = [
  detected("the cluster's CIDR", "ClusterCIDR"),
  {
    name: "pods cannot be detected",
    settings: { detectLocal: "none" },
    state: web(everywhere, ["a", "b"]),
    packets: [
      { from: outside, to: clusterIP("web"), port: 80, ...toBoth, source: "kept" },
      { from: pod("c"), to: nodeAddress, port: 30_080, ...toBoth, source: "masqueraded" },
      ...external,
    ],
  },
  {
    name: "pods cannot be detected, external policy Local",
    settings: { detectLocal: "none" },
    state: web({ ...everywhere, external: "Local" }, ["b", "c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b"], source: "kept" },
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["b"], source: "kept" },
      { from: n1, to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" },
    ],
  },
  {
    name: "pods cannot be detected, external policy Local, no endpoint on the node",
    settings: { detectLocal: "none" },
    state: web({ ...everywhere, external: "Local" }, ["c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, verdict: "silent", ...droppedOrReset },
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, verdict: "silent", ...droppedOrReset },
      { from: n1, to: loadBalancerIP("web"), port: 80, goesTo: ["c"], source: "masqueraded" },
    ],
  },
  detected("the node's CIDR", "NodeCIDR"),
  detected("the pods' bridge", "BridgeInterface"),
  detected("the prefix of the pods' links", "InterfaceNamePrefix"),
  {
    name: "masquerade all",
    settings: { masqueradeAll: true },
    state: web(everywhere, ["a", "b"]),
    packets: [
      ...fromEach([pod("a"), outside, n1], { to: clusterIP("web"), port: 80, ...toBoth, source: "masqueraded" }),
      ...external,
    ],
  },
  {
    name: "masquerade all, policies Local",
    settings: { masqueradeAll: true },
    state: web({ ...everywhere, internal: "Local", external: "Local" }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b"], source: "masqueraded" },
      // masquerade-all applies to cluster IPs only.
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b"], source: "kept" },
      { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b"], source: "kept" },
    ],
  },
];

const nodePort = { ports: [{ port: 80, nodePort: 30_080 }] };

/** Node ports on 127.0.0.1: they need `route_localnet`, which alone would expose the loopback address to neighbours. */
export const loopbackScenarios: readonly Scenario[] = [
  {
    name: "a neighbour cannot reach servers on the node's loopback address",
    state: web(nodePort, ["b", "c"]),
    packets: [
      { from: neighbour, to: localhost, port: 30_099, family: "v4", verdict: "silent" },
      { from: n1, to: localhost, port: 30_099, family: "v4", verdict: "untouched" },
      loopbackNodePort,
      // A node port is open to everyone on every address of the node.
      {
        ...{ from: neighbour, to: localhost, port: 30_080, family: "v4", goesTo: ["b", "c"], source: "masqueraded" },
        deviations: {
          "no-loopback-node-ports": { verdict: "silent" },
          "loopback-closed-to-neighbours": { verdict: "silent" },
        },
      },
      { from: neighbour, to: nodeAddress, port: 30_080, goesTo: ["b", "c"], source: "masqueraded" },
    ],
  },
  {
    name: "a neighbour and the loopback address, without an endpoint",
    state: web(nodePort, []),
    packets: [{ from: neighbour, to: localhost, port: 30_080, family: "v4", verdict: "silent" }],
  },
];
