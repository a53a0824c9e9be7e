import { web } from "./build.ts";
import { everywhere } from "./everywhere.ts";
import { clusterIP, fromEach, loadBalancerIP, n1, nodeAddress, outside, pod } from "./packet.ts";
import type { Scenario } from "./scenario.ts";

const toBoth = { goesTo: ["b", "c"] } as const;
/** Served by rules that accept packets. With nftables, no table can accept a packet that another one drops. */
const accepted = {
  ...toBoth,
  source: "masqueraded",
  deviations: { "forward-policy-applies": { verdict: "silent" } },
} as const;

/** Dropped by FORWARD, unless the proxy's packets do not pass it. */
const droppedByForward = (...goesTo: readonly ("b" | "c")[]) =>
  ({
    verdict: "silent",
    deviations: { "forward-policy-bypassed": { goesTo, source: "kept" } },
  }) as const;

const openInInput = { deviations: { "input-policy-applies": { verdict: "silent" } } } as const;

/**
 * Refused by rules that come before the firewall. The chains of kube-proxy's nftables mode have the same priority as
 * the chains of the firewall (0), which come first if they were added later; those of kpng-nft have priority -110.
 */
const refusedEarly = {
  verdict: "refused",
  deviations: { "input-policy-before-refusal": { verdict: "silent" } },
} as const;

/** Service proxies beside a firewall of the node with policy DROP. */
export const firewallScenarios: readonly Scenario[] = [
  {
    name: "policy DROP in FORWARD",
    firewall: { drops: ["FORWARD"] },
    state: web(everywhere, ["b", "c"]),
    packets: [
      // The rules accept packets with the mark for masquerading.
      ...fromEach([outside, pod("a")], { to: nodeAddress, port: 30_080, ...accepted }),
      { from: outside, to: loadBalancerIP("web"), port: 80, ...accepted },
      { from: outside, to: clusterIP("web"), port: 80, ...accepted },
      { from: n1, to: clusterIP("web"), port: 80, ...toBoth, source: "masqueraded" },
      // Accepting traffic between pods is up to the network plugin.
      { from: pod("a"), to: clusterIP("web"), port: 80, ...droppedByForward("b", "c") },
    ],
  },
  {
    name: "policy DROP in FORWARD, external policy Local",
    firewall: { drops: ["FORWARD"] },
    state: web({ ...everywhere, external: "Local" }, ["b", "c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, ...droppedByForward("b") },
      { from: outside, to: loadBalancerIP("web"), port: 80, ...droppedByForward("b") },
      { from: n1, to: loadBalancerIP("web"), port: 80, ...toBoth, source: "masqueraded" },
    ],
  },
  {
    name: "policy DROP in FORWARD, no endpoint",
    firewall: { drops: ["FORWARD"] },
    state: web(everywhere, []),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, ...refusedEarly },
      { from: outside, to: loadBalancerIP("web"), port: 80, ...refusedEarly },
      { from: outside, to: nodeAddress, port: 30_080, verdict: "refused" },
    ],
  },
  {
    name: "policy DROP in INPUT",
    firewall: { drops: ["INPUT"] },
    state: web({ ...everywhere, external: "Local", healthCheckNodePort: 31_000 }, ["b", "c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b"], source: "kept", ...openInInput },
      { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b"], source: "kept", ...openInInput },
      { from: outside, to: nodeAddress, port: 30_099, verdict: "silent" },
      { from: n1, to: nodeAddress, port: 30_080, ...toBoth, source: "masqueraded" },
    ],
    // A rule accepts the health-check node port.
    healthChecks: [{ port: 31_000, answer: { status: 200, localEndpoints: 1 }, isBehindFirewall: true }],
  },
  {
    name: "policy DROP in INPUT, no endpoint",
    firewall: { drops: ["INPUT"] },
    state: web(everywhere, []),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, ...refusedEarly },
      { from: outside, to: nodeAddress, port: 30_099, verdict: "silent" },
    ],
  },
];
