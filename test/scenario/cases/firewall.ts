import { web } from "../build.ts";
import { everywhere } from "../everywhere.ts";
import { clusterIP, loadBalancerIP, n1, nodeAddress, outside, pod } from "../packet.ts";
import type { Scenario } from "../scenario.ts";

const toBoth = { goesTo: ["b", "c"] } as const;

/** Service proxies beside a firewall of the node that drops what no rule names. */
export const firewallScenarios: readonly Scenario[] = [
  {
    name: "the node forwards nothing that no rule names",
    firewall: { drops: ["FORWARD"] },
    state: web(everywhere, ["b", "c"]),
    packets: [
      // What is to get the node's address is let through by its mark.
      { from: outside, to: nodeAddress, port: 30_080, ...toBoth, source: "masqueraded" },
      { from: outside, to: loadBalancerIP("web"), port: 80, ...toBoth, source: "masqueraded" },
      { from: outside, to: clusterIP("web"), port: 80, ...toBoth, source: "masqueraded" },
      { from: pod("a"), to: nodeAddress, port: 30_080, ...toBoth, source: "masqueraded" },
      { from: n1, to: clusterIP("web"), port: 80, ...toBoth, source: "masqueraded" },
      // What pods send among themselves is for the network plugin to let through.
      { from: pod("a"), to: clusterIP("web"), port: 80, verdict: "silent" },
    ],
  },
  {
    name: "the node forwards nothing that no rule names, external policy Local",
    firewall: { drops: ["FORWARD"] },
    state: web({ ...everywhere, external: "Local" }, ["b", "c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, verdict: "silent" },
      { from: outside, to: loadBalancerIP("web"), port: 80, verdict: "silent" },
      { from: n1, to: loadBalancerIP("web"), port: 80, ...toBoth, source: "masqueraded" },
    ],
  },
  {
    name: "the node forwards nothing that no rule names, and there is no endpoint",
    firewall: { drops: ["FORWARD"] },
    state: web(everywhere, []),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, verdict: "refused" },
      { from: outside, to: loadBalancerIP("web"), port: 80, verdict: "refused" },
      { from: outside, to: nodeAddress, port: 30_080, verdict: "refused" },
    ],
  },
  {
    name: "the node lets nothing in that no rule names",
    firewall: { drops: ["INPUT"] },
    state: web({ ...everywhere, external: "Local", healthCheckNodePort: 31_000 }, ["b", "c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b"], source: "kept" },
      { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b"], source: "kept" },
      { from: outside, to: nodeAddress, port: 30_099, verdict: "silent" },
      { from: n1, to: nodeAddress, port: 30_080, ...toBoth, source: "masqueraded" },
    ],
    // The port is let in because it is named, though nothing else is.
    healthChecks: [{ port: 31_000, answer: { status: 200, localEndpoints: 1 } }],
  },
  {
    name: "the node lets nothing in that no rule names, and there is no endpoint",
    firewall: { drops: ["INPUT"] },
    state: web(everywhere, []),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, verdict: "refused" },
      { from: outside, to: nodeAddress, port: 30_099, verdict: "silent" },
    ],
  },
];
