import { draining, type State, web } from "./build.ts";
import {
  balancer,
  droppedOrReset,
  everywhere,
  inside,
  nodePort,
  unknownAddressPort,
  unknownPort,
} from "./everywhere.ts";
import { clusterIP, n1, nodeAddress, type Packet, pod } from "./packet.ts";
import type { Flow, Update } from "./scenario.ts";

/** Expected packets of a Service with external policy Cluster and these endpoints. */
function goesTo(...hosts: ("b" | "c" | "d")[]): readonly Packet[] {
  return [
    { ...inside, goesTo: hosts, source: "kept" },
    { ...nodePort, goesTo: hosts, source: "masqueraded" },
    { ...balancer, goesTo: hosts, source: "masqueraded" },
  ];
}

const refused: readonly Packet[] = [inside, nodePort, balancer].map((way) => ({ ...way, verdict: "refused" }));

function step(state: State, packets: readonly Packet[]) {
  return { name: "", state, packets };
}

/** TCP flows to every kind of frontend, from every sender. */
const transfers: readonly Flow[] = [
  ...[inside, nodePort, balancer],
  { from: n1, to: clusterIP("web"), port: 80 } as const,
  { from: pod("a"), to: nodeAddress, port: 30_080 } as const,
].map((way) => ({ ...way, protocol: "tcp", becomes: "goes on" }));

/** With a proxy that carries the traffic, connections end with its process. */
const afterRestart: readonly Flow[] = [
  ...transfers.map((flow) => ({ ...flow, deviations: { "restart-ends-connections": "gets no answer" } }) as const),
  ...datagrams("goes on", { "restart-ends-connections": { movesTo: ["b", "c"] } }),
];

/** UDP flows to every kind of frontend. */
function datagrams(becomes: Flow["becomes"], deviations?: Flow["deviations"]): readonly Flow[] {
  return [inside, nodePort, balancer].map((way) => ({ ...way, protocol: "udp", becomes, deviations }));
}

/** All updates. */
export const updates: readonly Update[] = [
  {
    name: "an endpoint is added",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    flows: [...transfers, ...datagrams("goes on")],
  },
  {
    name: "an endpoint is removed",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web(everywhere, ["c"]), goesTo("c")),
    // The removed pod itself ends its connections.
    flows: [...transfers, ...datagrams({ movesTo: ["c"] })],
  },
  {
    name: "the only endpoint is replaced",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web(everywhere, ["c"]), goesTo("c")),
    flows: [...transfers, ...datagrams({ movesTo: ["c"] })],
  },
  {
    name: "an endpoint terminates",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web(everywhere, [draining("b"), "c"]), goesTo("c")),
    flows: [...transfers, ...datagrams("goes on")],
  },
  {
    name: "the last ready endpoint terminates",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web(everywhere, [draining("b")]), goesTo("b")),
    flows: [...transfers, ...datagrams("goes on")],
  },
  {
    name: "the last endpoint is removed",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web(everywhere, []), refused),
    flows: [...transfers, ...datagrams("gets no answer", { "stale-udp-without-endpoint": "goes on" })],
  },
  {
    name: "the first endpoint is added",
    before: step(web(everywhere, []), refused),
    after: step(web(everywhere, ["b"]), goesTo("b")),
    flows: datagrams({ movesTo: ["b"] }),
  },
  {
    name: "the external policy becomes Local",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web({ ...everywhere, external: "Local" }, ["b", "c"]), [
      { ...inside, goesTo: ["b", "c"], source: "kept" },
      { ...nodePort, goesTo: ["b"], source: "kept" },
      { ...balancer, goesTo: ["b"], source: "kept" },
    ]),
    flows: transfers,
  },
  {
    name: "the external policy becomes Cluster",
    before: step(web({ ...everywhere, external: "Local" }, ["c"]), [
      { ...inside, goesTo: ["c"], source: "kept" },
      { ...nodePort, verdict: "silent", ...droppedOrReset },
      { ...balancer, verdict: "silent", ...droppedOrReset },
    ]),
    after: step(web(everywhere, ["c"]), goesTo("c")),
    flows: [{ ...inside, protocol: "tcp", becomes: "goes on" }],
  },
  {
    name: "the internal policy becomes Local",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web({ ...everywhere, internal: "Local" }, ["b", "c"]), [
      { ...inside, goesTo: ["b"], source: "kept" },
      { ...nodePort, goesTo: ["b", "c"], source: "masqueraded" },
    ]),
    flows: transfers,
  },
  {
    name: "session affinity is enabled",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web({ ...everywhere, affinitySeconds: 600 }, ["b", "c"]), [
      { ...nodePort, goesTo: ["b", "c"], isSticky: true, source: "masqueraded" },
    ]),
    flows: transfers,
  },
  {
    name: "the endpoint of clients with affinity is removed",
    before: step(web({ ...everywhere, affinitySeconds: 600 }, ["b", "c"]), [
      { ...nodePort, goesTo: ["b", "c"], isSticky: true, source: "masqueraded" },
    ]),
    after: step(web({ ...everywhere, affinitySeconds: 600 }, ["c"]), goesTo("c")),
    flows: transfers,
  },
  {
    name: "the Service changes its port and node port",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web({ ...everywhere, ports: [{ port: 81, nodePort: 30_081 }] }, ["b"]), [
      { ...inside, port: 81, goesTo: ["b"], source: "kept" },
      { ...nodePort, port: 30_081, goesTo: ["b"], source: "masqueraded" },
      { ...inside, verdict: "untouched", ...unknownPort },
      { ...nodePort, verdict: "untouched" },
      { ...balancer, verdict: "untouched", ...unknownAddressPort },
    ]),
    flows: transfers,
  },
  {
    name: "the Service is deleted and a different one is created",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web({ ports: [{ port: 8_000, targetPort: 8443 }], number: 21 }, ["c"]), [
      { ...inside, port: 8_000, goesTo: ["c"], source: "kept" },
      { ...nodePort, verdict: "untouched" },
    ]),
    flows: transfers,
  },
  {
    name: "the target port changes",
    before: step(web(everywhere, ["b"]), goesTo("b")),
    after: step(web({ ...everywhere, ports: [{ port: 80, nodePort: 30_080, targetPort: 8443 }] }, ["b"]), goesTo("b")),
    flows: transfers,
  },
  {
    name: "the backend restarts",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    event: "restart",
    flows: afterRestart,
  },
  {
    name: "the rules are lost and the backend restarts",
    before: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    after: step(web(everywhere, ["b", "c"]), goesTo("b", "c")),
    event: "rules lost",
    flows: afterRestart.filter(({ protocol }) => protocol === "tcp"),
  },
];
