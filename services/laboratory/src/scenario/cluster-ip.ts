import { named, together, web } from "./build.ts";
import { deletedAddress, unknownPort } from "./everywhere.ts";
import { clusterIP, fromEach, n1, outside, pod } from "./packet.ts";
import type { Scenario } from "./scenario.ts";

/** Cluster IPs, from pods, from the node and from outside. */
export const clusterIPScenarios: readonly Scenario[] = [
  {
    name: "a cluster IP with two ports",
    state: web({ ports: [{ port: 80 }, { port: 443, targetPort: 8443 }] }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      { from: pod("a"), to: clusterIP("web"), port: 443, goesTo: ["b", "c"], source: "kept" },
      { from: n1, to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" },
      { from: outside, to: clusterIP("web"), port: 443, goesTo: ["b", "c"], source: "masqueraded" },
      ...fromEach([pod("a"), n1, outside], { to: clusterIP("web"), port: 81, verdict: "untouched", ...unknownPort }),
    ],
  },
  {
    name: "one port number with different target ports for TCP and UDP",
    state: web(
      {
        ports: [
          { port: 53, targetPort: 8080, protocols: ["tcp"] },
          { port: 53, targetPort: 8443, protocols: ["udp"] },
          { port: 80, protocols: ["tcp"] },
          { port: 123, protocols: ["udp"] },
        ],
      },
      ["b", "c", "d"],
    ),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 53, goesTo: ["b", "c", "d"], source: "kept" },
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "tcp", goesTo: ["b", "c", "d"], source: "kept" },
      { from: pod("a"), to: clusterIP("web"), port: 80, protocol: "udp", verdict: "untouched", ...unknownPort },
      { from: pod("a"), to: clusterIP("web"), port: 123, protocol: "udp", goesTo: ["b", "c", "d"], source: "kept" },
      { from: pod("a"), to: clusterIP("web"), port: 123, protocol: "tcp", verdict: "untouched", ...unknownPort },
    ],
  },
  {
    name: "two Services with the same port",
    state: together(named("web", { number: 11 }, ["b"]), named("shop", { number: 12 }, ["c"])),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b"], source: "kept" },
      { from: pod("a"), to: clusterIP("shop"), port: 80, goesTo: ["c"], source: "kept" },
    ],
  },
  {
    name: "a pod that reaches itself",
    state: together(named("alone", { number: 11 }, ["a"]), named("both", { number: 12 }, ["a", "b"])),
    packets: [
      { from: pod("a"), to: clusterIP("alone"), port: 80, goesTo: ["a"], source: "masqueraded" },
      { from: pod("b"), to: clusterIP("alone"), port: 80, goesTo: ["a"], source: "kept" },
      { from: pod("a"), to: clusterIP("both"), port: 80, goesTo: ["a", "b"] },
    ],
  },
  {
    name: "endpoints in the host network",
    state: web({}, ["n1", "n2"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["n1", "n2"], source: "kept" },
      // The node does not masquerade packets that it receives itself: masquerading happens on the way out.
      { from: outside, to: clusterIP("web"), port: 80, goesTo: ["n1", "n2"] },
      { from: n1, to: clusterIP("web"), port: 80, goesTo: ["n1", "n2"] },
    ],
  },
  {
    name: "a Service of another proxy",
    state: web({ labels: { "service.kubernetes.io/service-proxy-name": "other" } }, ["b"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, verdict: "untouched", ...deletedAddress },
      { from: outside, to: clusterIP("web"), port: 80, verdict: "untouched", ...deletedAddress },
    ],
  },
];
