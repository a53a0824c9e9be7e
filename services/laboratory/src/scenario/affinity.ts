import { named, publicAddress, type ServiceOptions, web } from "./build.ts";
import { clusterIP, loadBalancerIP, nodeAddress, outside, pod } from "./packet.ts";
import type { Scenario } from "./scenario.ts";

const sticky: ServiceOptions = {
  ports: [{ port: 80, nodePort: 30_080 }],
  loadBalancerIPs: [publicAddress(10)],
  affinitySeconds: 600,
};

/** Session affinity: a client keeps its endpoint, and clients are spread. */
export const affinityScenarios: readonly Scenario[] = [
  {
    name: "session affinity",
    state: web(sticky, ["b", "c"]),
    packets: [
      { from: outside, to: clusterIP("web"), port: 80, goesTo: ["b", "c"], isSticky: true, source: "masqueraded" },
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b", "c"], isSticky: true, source: "masqueraded" },
      { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], isSticky: true, source: "masqueraded" },
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], isSticky: true, source: "kept" },
    ],
  },
  {
    name: "session affinity and external policy Local",
    // A separate name: the kernel stores the affinity of clients by name, and would reuse that of the scenario before.
    state: named("local", { ...sticky, external: "Local" }, ["a", "b", "c"]),
    packets: [
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["a", "b"], isSticky: true, source: "kept" },
      { from: outside, to: loadBalancerIP("local"), port: 80, goesTo: ["a", "b"], isSticky: true, source: "kept" },
    ],
  },
  {
    name: "session affinity that times out",
    state: named("brief", { ports: [{ port: 80, nodePort: 30_080 }], affinitySeconds: 2 }, ["b", "c"]),
    packets: [
      {
        ...{ from: outside, to: nodeAddress, port: 30_080 },
        ...{ goesTo: ["b", "c"], isSticky: true, forgottenAfterSeconds: 2 },
        deviations: { "affinity-may-outlast-timeout": { goesTo: ["b", "c"], isSticky: true } },
      },
    ],
  },
  {
    name: "session affinity and a pod that reaches itself",
    state: web({ affinitySeconds: 600 }, ["a"]),
    packets: [{ from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["a"], isSticky: true, source: "masqueraded" }],
  },
];
