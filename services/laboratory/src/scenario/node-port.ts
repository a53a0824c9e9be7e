import { named, publicAddress, together, web } from "./build.ts";
import { onLoopback, unknownPort } from "./everywhere.ts";
import {
  bridgeAddress,
  clusterIP,
  fromEach,
  loadBalancerIP,
  localhost,
  n1,
  nodeAddress,
  outside,
  pod,
  stranger,
} from "./packet.ts";
import { hosts, ranges } from "./places.ts";
import type { Scenario } from "./scenario.ts";

const state = web({ ports: [{ port: 80, nodePort: 30_080 }] }, ["b", "c"]);
const served = { port: 30_080, goesTo: ["b", "c"], source: "masqueraded" } as const;
const untouched = { port: 30_080, verdict: "untouched" } as const;

/** Another Service, with an external IP that is an address of the node and the number of the node port as its port. */
const atNodeAddress = { number: 12, ports: [{ port: 30_080 }], externalIPs: [hosts.n1] };
const toC = { port: 30_080, goesTo: ["c"], source: "masqueraded" } as const;

/** The Service with the address may go before the node port even if it has no endpoint. */
const orRefused = { deviations: { "external-ip-before-node-port": { verdict: "refused" } } } as const;

/** Node ports, from every sender and with each option. */
export const nodePortScenarios: readonly Scenario[] = [
  {
    name: "a node port",
    state,
    packets: [
      ...fromEach([outside, stranger, pod("a"), n1], { to: nodeAddress, ...served }),
      ...fromEach([outside, pod("a")], { to: bridgeAddress, ...served }),
      { from: n1, to: localhost, family: "v4", ...served, ...onLoopback },
      // Linux has no route_localnet for IPv6.
      { from: n1, to: localhost, family: "v6", ...untouched },
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      { from: pod("a"), to: clusterIP("web"), port: 30_080, verdict: "untouched", ...unknownPort },
      { from: outside, to: nodeAddress, port: 80, verdict: "untouched" },
      { from: outside, to: nodeAddress, port: 30_081, verdict: "untouched" },
    ],
  },
  {
    name: "a pod reaches itself through a node port",
    state: web({ ports: [{ port: 80, nodePort: 30_080 }] }, ["a"]),
    packets: [{ from: pod("a"), to: nodeAddress, port: 30_080, goesTo: ["a"], source: "masqueraded" }],
  },
  {
    name: "an external IP of the node, with the number of another Service's node port",
    state: together(state, named("ip", atNodeAddress, ["c"])),
    packets: [
      ...fromEach([outside, pod("a"), n1], { to: nodeAddress, ...toC }),
      ...fromEach([outside, pod("a")], { to: bridgeAddress, ...served }),
    ],
  },
  {
    name: "the same while the Service with the external IP has no endpoint",
    state: together(state, named("ip", atNodeAddress, [])),
    packets: [
      ...fromEach([outside, pod("a"), n1], { to: nodeAddress, ...served, ...orRefused }),
      { from: outside, to: bridgeAddress, ...served },
      { from: pod("a"), to: clusterIP("ip"), port: 30_080, verdict: "refused" },
    ],
  },
  {
    name: "a node port after an external IP with its number has gone",
    state,
    packets: [
      { from: outside, to: nodeAddress, ...served },
      { from: outside, to: bridgeAddress, ...served },
    ],
  },
  {
    name: "node ports on some of the node's addresses",
    settings: { nodePortAddresses: [ranges.lan.v4, ranges.lan.v6] },
    state,
    packets: [
      ...fromEach([outside, pod("a"), n1], { to: nodeAddress, ...served }),
      ...fromEach([pod("a"), outside], { to: bridgeAddress, ...untouched }),
      { from: n1, to: localhost, ...untouched },
    ],
  },
  {
    name: "node ports not on localhost",
    settings: { localhostNodePorts: false },
    state,
    packets: [
      { from: outside, to: nodeAddress, ...served },
      { from: outside, to: bridgeAddress, ...served },
      { from: n1, to: nodeAddress, ...served },
      { from: n1, to: localhost, ...untouched },
    ],
  },
];

const ports = [{ port: 80, nodePort: 30_080, protocols: ["sctp", "tcp"] as const }];
const notServed = { deviations: { "no-sctp": { verdict: "untouched" } } } as const;
const sctp = { protocol: "sctp", goesTo: ["b", "c"], ...notServed } as const;

/** SCTP, which a service proxy treats like TCP. */
export const sctpScenarios: readonly Scenario[] = [
  {
    name: "SCTP beside TCP on one port",
    state: web({ ports, loadBalancerIPs: [publicAddress(10)] }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, ...sctp, source: "kept" },
      { from: n1, to: clusterIP("web"), port: 80, ...sctp, source: "masqueraded" },
      { from: outside, to: nodeAddress, port: 30_080, ...sctp, source: "masqueraded" },
      { from: outside, to: loadBalancerIP("web"), port: 80, ...sctp, source: "masqueraded" },
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "udp", verdict: "untouched", ...unknownPort },
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "tcp", goesTo: ["b", "c"], source: "kept" },
    ],
  },
  {
    name: "SCTP without an endpoint",
    state: web({ ports }, []),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "sctp", verdict: "refused", ...notServed },
      { from: outside, to: nodeAddress, port: 30_080, protocol: "sctp", verdict: "refused", ...notServed },
    ],
  },
];
