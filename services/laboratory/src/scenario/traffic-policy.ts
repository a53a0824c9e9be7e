import { draining, type EndpointOption, publicAddress, type ServiceOptions, web } from "./build.ts";
import { droppedOrReset, loopbackNodePort } from "./everywhere.ts";
import {
  clusterIP,
  externalIP,
  type Frontend,
  fromEach,
  loadBalancerIP,
  localhost,
  n1,
  nodeAddress,
  outside,
  type Packet,
  pod,
  stranger,
} from "./packet.ts";
import { ranges } from "./places.ts";
import type { Scenario } from "./scenario.ts";

const everywhere: ServiceOptions = {
  ports: [{ port: 80, nodePort: 30_080 }],
  loadBalancerIPs: [publicAddress(10)],
  externalIPs: [publicAddress(20)],
};

/** Frontends that the external policy applies to. */
const frontends: readonly { readonly to: Frontend; readonly port: number }[] = [
  { to: nodeAddress, port: 30_080 },
  { to: loadBalancerIP("web"), port: 80 },
  { to: externalIP("web"), port: 80 },
];

function onEach(make: (frontend: { readonly to: Frontend; readonly port: number }) => readonly Packet[]) {
  return frontends.flatMap(make);
}

/** Traffic policy Local, internal and external. */
export const trafficPolicyScenarios: readonly Scenario[] = [
  {
    name: "external policy Local with an endpoint on the node",
    state: web({ ...everywhere, external: "Local" }, ["b", "c"]),
    packets: [
      ...onEach((frontend) => [
        { from: outside, ...frontend, goesTo: ["b"], source: "kept" },
        // Packets from pods and from the node count as internal and are treated like packets to the cluster IP.
        { from: pod("a"), ...frontend, goesTo: ["b", "c"], source: "kept" },
        { from: n1, ...frontend, goesTo: ["b", "c"], source: "masqueraded" },
      ]),
      loopbackNodePort,
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
      { from: outside, to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" },
    ],
  },
  {
    name: "external policy Local without an endpoint on the node",
    state: web({ ...everywhere, external: "Local" }, ["c", "d"]),
    packets: [
      ...onEach((frontend) => [
        { from: outside, ...frontend, verdict: "silent", ...droppedOrReset },
        { from: pod("a"), ...frontend, goesTo: ["c", "d"], source: "kept" },
        { from: n1, ...frontend, goesTo: ["c", "d"], source: "masqueraded" },
      ]),
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["c", "d"], source: "kept" },
    ],
  },
  {
    name: "external policy Local, pods of another node, and a pod that reaches itself",
    state: web({ ...everywhere, external: "Local" }, ["a", "b"]),
    packets: [
      { from: pod("c"), to: nodeAddress, port: 30_080, goesTo: ["a", "b"], source: "kept" },
      { from: outside, to: nodeAddress, port: 30_080, goesTo: ["a", "b"], source: "kept" },
      { from: pod("a"), to: loadBalancerIP("web"), port: 80, goesTo: ["a", "b"] },
    ],
  },
  {
    name: "external policy Local, and a pod of another node that reaches itself through this node",
    state: web({ ...everywhere, external: "Local" }, ["c"]),
    packets: [
      // With its own address as source, the answer would never leave the pod.
      {
        ...{ from: pod("c"), to: nodeAddress, port: 30_080, goesTo: ["c"], source: "masqueraded" },
        deviations: { "remote-hairpin-unanswered": { verdict: "silent" } },
      },
    ],
  },
  {
    name: "external policy Local with source ranges",
    state: web({ ...everywhere, external: "Local", sourceRanges: [ranges.outside] }, ["b", "c"]),
    packets: [
      { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b"], source: "kept" },
      ...fromEach([stranger, pod("a")], { to: loadBalancerIP("web"), port: 80, verdict: "silent", ...droppedOrReset }),
      { from: stranger, to: nodeAddress, port: 30_080, goesTo: ["b"], source: "kept" },
    ],
  },
  {
    name: "internal policy Local with an endpoint on the node",
    state: web({ ...everywhere, internal: "Local" }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b"], source: "kept" },
      ...fromEach([n1, outside], { to: clusterIP("web"), port: 80, goesTo: ["b"], source: "masqueraded" }),
      ...onEach((frontend) => [{ from: outside, ...frontend, goesTo: ["b", "c"], source: "masqueraded" }]),
    ],
  },
  {
    name: "internal policy Local without an endpoint on the node",
    state: web({ ...everywhere, internal: "Local" }, ["c", "d"]),
    packets: [
      ...fromEach([pod("a"), n1, outside], { to: clusterIP("web"), port: 80, verdict: "silent" }),
      ...onEach((frontend) => [{ from: outside, ...frontend, goesTo: ["c", "d"], source: "masqueraded" }]),
    ],
  },
  {
    name: "both policies Local",
    state: web({ ...everywhere, internal: "Local", external: "Local" }, ["b", "c"]),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b"], source: "kept" },
      ...onEach((frontend) => [
        { from: outside, ...frontend, goesTo: ["b"], source: "kept" },
        { from: pod("a"), ...frontend, goesTo: ["b", "c"], source: "kept" },
        { from: n1, ...frontend, goesTo: ["b", "c"], source: "masqueraded" },
      ]),
    ],
  },
  {
    name: "no endpoint",
    state: web(everywhere, []),
    packets: [
      ...fromEach([pod("a"), n1, outside], { to: clusterIP("web"), port: 80, verdict: "refused" }),
      ...onEach((frontend) => fromEach([outside, pod("a")], { ...frontend, verdict: "refused" })),
      { from: n1, to: nodeAddress, port: 30_080, verdict: "refused" },
      { from: n1, to: localhost, port: 30_080, verdict: "refused" },
    ],
  },
  {
    name: "no endpoint, with policies Local",
    state: web({ ...everywhere, internal: "Local", external: "Local" }, []),
    packets: [
      { from: pod("a"), to: clusterIP("web"), port: 80, verdict: "refused" },
      ...onEach((frontend) => fromEach([outside, pod("a")], { ...frontend, verdict: "refused" })),
    ],
  },
  {
    name: "no endpoint, and a client outside the source ranges",
    state: web({ ...everywhere, sourceRanges: [ranges.outside] }, []),
    packets: [
      { from: outside, to: loadBalancerIP("web"), port: 80, verdict: "refused" },
      {
        ...{ from: stranger, to: loadBalancerIP("web"), port: 80, verdict: "refused" },
        deviations: { "source-ranges-without-endpoint": { verdict: "silent" } },
      },
    ],
  },
];

const port = 32_000;

function checked(
  name: string,
  endpoints: readonly EndpointOption[],
  status: 200 | 503,
  localEndpoints: number,
): Scenario {
  return {
    name: `health-check node port, ${name}`,
    state: web(
      {
        ports: [{ port: 80, nodePort: 30_080 }],
        loadBalancerIPs: [publicAddress(10)],
        external: "Local",
        healthCheckNodePort: port,
      },
      endpoints,
    ),
    packets: [],
    healthChecks: [{ port, answer: { status, localEndpoints } }],
  };
}

/** Health-check node ports, by which a load balancer finds the nodes with endpoints. */
export const healthCheckScenarios: readonly Scenario[] = [
  checked("two endpoints on the node", ["a", "b", "c"], 200, 2),
  checked("no endpoint on the node", ["c", "d"], 503, 0),
  // The load balancer stops sending while the terminating endpoint still serves.
  checked("a terminating endpoint", [draining("a"), "c"], 503, 0),
  checked("no endpoint at all", [], 503, 0),
  {
    name: "no health-check node port with external policy Cluster",
    state: web({ ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] }, ["a"]),
    packets: [],
    healthChecks: [{ port, answer: undefined }],
  },
];
