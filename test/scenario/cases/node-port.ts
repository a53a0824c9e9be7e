import { web } from "../build.ts";
import { notOnLoopback, refusedByNftables } from "../everywhere.ts";
import { bridgeAddress, clusterIP, localhost, n1, nodeAddress, outside, pod, stranger } from "../packet.ts";
import { ranges } from "../places.ts";
import type { Scenario } from "../scenario.ts";

const state = web({ ports: [{ port: 80, nodePort: 30_080 }] }, ["b", "c"]);
const served = { port: 30_080, goesTo: ["b", "c"], source: "masqueraded" } as const;
const untouched = { port: 30_080, verdict: "untouched" } as const;

/** Node ports, from every sender and with each option. */
export const nodePortScenarios: readonly Scenario[] = [
  {
    name: "a node port",
    state,
    packets: [
      { from: outside, to: nodeAddress, ...served },
      { from: stranger, to: nodeAddress, ...served },
      { from: outside, to: bridgeAddress, ...served },
      { from: pod("a"), to: nodeAddress, ...served },
      { from: pod("a"), to: bridgeAddress, ...served },
      { from: n1, to: nodeAddress, ...served },
      { from: n1, to: localhost, family: "v4", ...served, ...notOnLoopback },
      // Linux has no route_localnet for IPv6.
      { from: n1, to: localhost, family: "v6", ...untouched },
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      { from: pod("a"), to: clusterIP("web"), port: 30_080, verdict: "untouched", ...refusedByNftables },
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
    name: "node ports on some of the node's addresses",
    settings: { nodePortAddresses: [ranges.lan.v4, ranges.lan.v6] },
    state,
    packets: [
      { from: outside, to: nodeAddress, ...served },
      { from: pod("a"), to: nodeAddress, ...served },
      { from: n1, to: nodeAddress, ...served },
      { from: pod("a"), to: bridgeAddress, ...untouched },
      { from: outside, to: bridgeAddress, ...untouched },
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
