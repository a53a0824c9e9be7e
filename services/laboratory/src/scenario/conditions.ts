import { draining, forNode, forZoneOf, gone, unready, web } from "./build.ts";
import { balancer, droppedOrReset, everywhere, inside, nodePort } from "./everywhere.ts";
import { clusterIP, loadBalancerIP, n1, pod } from "./packet.ts";
import type { Scenario } from "./scenario.ts";

/** Choice of endpoints: readiness, termination and hints. */
export const conditionScenarios: readonly Scenario[] = [
  {
    name: "a ready endpoint and others",
    state: web(everywhere, [unready("a"), "b", draining("c"), gone("d")]),
    packets: [
      { ...inside, goesTo: ["b"], source: "kept" },
      { ...nodePort, goesTo: ["b"], source: "masqueraded" },
      { ...balancer, goesTo: ["b"], source: "masqueraded" },
    ],
  },
  {
    name: "serving, terminating endpoints and no ready one",
    state: web(everywhere, [unready("a"), draining("b"), draining("c"), gone("d")]),
    packets: [
      { ...inside, goesTo: ["b", "c"], source: "kept" },
      { ...nodePort, goesTo: ["b", "c"], source: "masqueraded" },
      { from: n1, to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" },
    ],
  },
  {
    name: "neither ready nor serving endpoints",
    state: web(everywhere, [unready("a"), unready("b"), gone("c"), gone("d")]),
    packets: [
      { ...inside, verdict: "refused" },
      { ...nodePort, verdict: "refused" },
      { ...balancer, verdict: "refused" },
    ],
  },
  {
    name: "external policy Local, the node's endpoint terminating, one ready elsewhere",
    state: web({ ...everywhere, external: "Local" }, [draining("b"), "c"]),
    packets: [
      { ...inside, goesTo: ["c"], source: "kept" },
      { ...nodePort, goesTo: ["b"], source: "kept" },
      { ...balancer, goesTo: ["b"], source: "kept" },
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["c"], source: "kept" },
    ],
  },
  {
    name: "internal policy Local, the node's endpoint terminating, one ready elsewhere",
    state: web({ ...everywhere, internal: "Local" }, [draining("b"), "c"]),
    packets: [
      { ...inside, goesTo: ["b"], source: "kept" },
      { ...nodePort, goesTo: ["c"], source: "masqueraded" },
    ],
  },
  {
    name: "policies Local, the node's endpoints ready and terminating",
    state: web({ ...everywhere, internal: "Local", external: "Local" }, ["a", draining("b"), "c"]),
    packets: [
      { from: pod("b"), to: clusterIP("web"), port: 80, goesTo: ["a"], source: "kept" },
      { ...nodePort, goesTo: ["a"], source: "kept" },
      { ...balancer, goesTo: ["a"], source: "kept" },
    ],
  },
  {
    name: "policies Local, the node's endpoints not serving, one ready elsewhere",
    state: web({ ...everywhere, internal: "Local", external: "Local" }, [unready("a"), gone("b"), "c"]),
    packets: [
      { ...inside, verdict: "silent" },
      { ...nodePort, verdict: "silent", ...droppedOrReset },
      { ...balancer, verdict: "silent", ...droppedOrReset },
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["c"], source: "kept" },
    ],
  },
  {
    name: "policies Local, none on the node, the others terminating",
    state: web({ ...everywhere, internal: "Local", external: "Local" }, [draining("c"), draining("d")]),
    packets: [
      { ...inside, verdict: "silent" },
      { ...nodePort, verdict: "silent", ...droppedOrReset },
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["c", "d"], source: "kept" },
    ],
  },
  {
    name: "endpoints with zone hints",
    state: web(everywhere, [forZoneOf("n1", "b"), forZoneOf("n2", "c"), forZoneOf("n1", "d")]),
    packets: [
      { ...inside, goesTo: ["b", "d"], source: "kept" },
      { ...nodePort, goesTo: ["b", "d"], source: "masqueraded" },
    ],
  },
  {
    name: "endpoints with zone hints, one without a hint",
    state: web(everywhere, [forZoneOf("n1", "b"), forZoneOf("n2", "c"), "d"]),
    packets: [{ ...inside, goesTo: ["b", "c", "d"], source: "kept" }],
  },
  {
    name: "endpoints with hints for other zones only",
    state: web(everywhere, [forZoneOf("n2", "b"), forZoneOf("n2", "c")]),
    packets: [{ ...inside, goesTo: ["b", "c"], source: "kept" }],
  },
  {
    name: "endpoints with node hints",
    state: web(everywhere, [forNode("n1", "b"), forNode("n2", "c")]),
    packets: [
      { ...inside, goesTo: ["b"], source: "kept" },
      { ...balancer, goesTo: ["b"], source: "masqueraded" },
    ],
  },
  {
    name: "policy Local ignores hints",
    state: web({ ...everywhere, external: "Local" }, [forZoneOf("n2", "a"), forZoneOf("n1", "c")]),
    packets: [
      { ...nodePort, goesTo: ["a"], source: "kept" },
      { from: pod("b"), to: clusterIP("web"), port: 80, goesTo: ["c"], source: "kept" },
    ],
  },
];
