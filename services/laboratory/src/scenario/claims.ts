import { named, publicAddress, together, web } from "./build.ts";
import { droppedOrReset } from "./everywhere.ts";
import { clusterIP, externalIP, fromEach, loadBalancerIP, n1, outside, pod, stranger } from "./packet.ts";
import { ranges } from "./places.ts";
import type { Scenario } from "./scenario.ts";

/** The Service "web" has the endpoints b and c; its rival, which is older and first by name, has d. */
const rival = { number: 12, created: "2024-01-01T00:00:00Z" } as const;
const victim = { number: 11, created: "2025-01-01T00:00:00Z" } as const;
const itsClusterIP = { v4: "10.96.0.11", v6: "fd00:10:96::11" } as const;
const itsAddress = publicAddress(20);
const own = { goesTo: ["b", "c"] } as const;

/**
 * kube-proxy has rules of both Services, in the order of a Go map, or one element of a map for both, of the Service that
 * was synced last.
 */
const notRunWith = "claims-vary";

/** Services that claim the frontends of others. */
export const claimScenarios: readonly Scenario[] = [
  {
    name: "an external IP that is the cluster IP of another Service",
    state: together(web(victim, ["b", "c"]), named("a-rival", { ...rival, externalIPs: [itsClusterIP] }, ["d"])),
    notRunWith,
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, ...own, source: "kept" },
      { from: n1, to: clusterIP("web"), port: 80, ...own },
      { from: outside, to: clusterIP("web"), port: 80, ...own, source: "masqueraded" },
      { from: pod("a"), to: clusterIP("a-rival"), port: 80, goesTo: ["d"], source: "kept" },
    ],
  },
  {
    name: "an external IP that is the cluster IP of a Service without endpoints",
    state: together(web(victim, []), named("a-rival", { ...rival, externalIPs: [itsClusterIP] }, ["d"])),
    notRunWith,
    packets: fromEach([pod("a"), n1, outside], { to: clusterIP("web"), port: 80, verdict: "refused" }),
  },
  {
    name: "a load-balancer IP for some clients that is the cluster IP of another Service",
    state: together(
      web(victim, ["b", "c"]),
      named("a-rival", { ...rival, loadBalancerIPs: [itsClusterIP], sourceRanges: [ranges.outside] }, ["d"]),
    ),
    notRunWith,
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, ...own, source: "kept" },
      { from: n1, to: clusterIP("web"), port: 80, ...own },
      ...fromEach([outside, stranger], { to: clusterIP("web"), port: 80, ...own, source: "masqueraded" }),
    ],
  },
  {
    name: "an external IP at another port of a cluster IP",
    state: together(
      web(victim, ["b", "c"]),
      named("a-rival", { ...rival, ports: [{ port: 81 }], externalIPs: [itsClusterIP] }, ["d"]),
    ),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, ...own, source: "kept" },
      { from: pod("a"), to: externalIP("a-rival"), port: 81, goesTo: ["d"], source: "masqueraded" },
    ],
  },
  {
    name: "an external IP that is the load-balancer IP of another Service, which some clients may use",
    state: together(
      web({ ...victim, loadBalancerIPs: [itsAddress], sourceRanges: [ranges.outside] }, ["b", "c"]),
      named("a-rival", { ...rival, externalIPs: [itsAddress] }, ["d"]),
    ),
    notRunWith,
    packets: [
      { from: outside, to: loadBalancerIP("web"), port: 80, ...own, source: "masqueraded" },
      ...fromEach([stranger, pod("a")], { to: loadBalancerIP("web"), port: 80, verdict: "silent", ...droppedOrReset }),
    ],
  },
  {
    name: "an external IP of two Services, which the older one keeps",
    state: together(
      named("a-rival", { ...rival, created: "2026-01-01T00:00:00Z", externalIPs: [itsAddress] }, ["d"]),
      web({ ...victim, externalIPs: [itsAddress] }, ["b", "c"]),
    ),
    notRunWith,
    packets: [
      ...fromEach([outside, pod("a")], { to: externalIP("web"), port: 80, ...own, source: "masqueraded" }),
      { from: n1, to: externalIP("web"), port: 80, ...own },
    ],
  },
  {
    name: "an external IP of two Services, after the older one has gone",
    state: named("a-rival", { ...rival, created: "2026-01-01T00:00:00Z", externalIPs: [itsAddress] }, ["d"]),
    packets: [{ from: outside, to: externalIP("a-rival"), port: 80, goesTo: ["d"], source: "masqueraded" }],
  },
];
