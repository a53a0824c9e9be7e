import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import { endpoint, port, type ServiceParts, service } from "@kpng/model/testing/views.ts";
import { describe, expect, test } from "vitest";
import { maxExternalFrontends, planService } from "./plan-service.ts";
import type { NodePlan } from "./service-plan.ts";
import { describePlan } from "./testing/describe-plan.ts";
import { nodePlan } from "./testing/node-plans.ts";
import { nodePlanOf, onRandomStates } from "./testing/random-views.ts";

const here = (address: string): ViewEndpoint =>
  endpoint(address, { ports: [{ name: "", port: 8080 }], isOnNode: true, use: { cluster: true, local: true } });
const away = (address: string): ViewEndpoint => endpoint(address, { ports: [{ name: "", port: 8080 }] });
const elsewhere = [{ v4: true, v6: true }];
const balancer = { type: "LoadBalancer" as const, loadBalancerIPs: ["5.6.7.8"] };
const clusterIP = "clusterIP 10.96.0.10:80/TCP";
const loadBalancerIP = "loadBalancerIP 5.6.7.8:80/TCP";
const fromPods = "pod cluster, others cluster masqueraded";

interface Row {
  readonly name: string;
  readonly parts: ServiceParts;
  readonly node?: Partial<NodePlan>;
  readonly plan: readonly string[];
}

const internal: readonly Row[] = [
  {
    name: "endpoints are ascending by their text, each once",
    parts: {
      endpoints: [away("10.0.1.9"), away("10.0.1.10"), away("10.0.1.1"), { ...away("10.0.1.9"), key: "again" }],
    },
    plan: [`${clusterIP}: ${fromPods}`, "cluster: 10.0.1.10:8080 10.0.1.1:8080 10.0.1.9:8080"],
  },
  {
    name: "an endpoint in neither set gets no packet",
    parts: { endpoints: [endpoint("10.0.0.1", { isOnNode: true, use: { cluster: false, local: false } })] },
    plan: [`${clusterIP}: refuse`],
  },
  { name: "a headless Service has no plan", parts: { isHeadless: true, ips: [] }, plan: [] },
  { name: "an ExternalName has no plan", parts: { type: "ExternalName", ips: [] }, plan: [] },
  {
    name: "a Service of the other family has no plan",
    parts: { ips: ["fd00::1"], endpoints: [here("10.0.0.1")] },
    plan: [],
  },
  {
    name: "a Service without cluster IPs, which a state file may contain, is served at its other addresses",
    parts: { ips: [], externalIPs: ["9.9.9.9"], endpoints: [away("10.0.1.1")] },
    plan: ["externalIP 9.9.9.9:80/TCP: cluster masqueraded", "cluster: 10.0.1.1:8080"],
  },
  {
    name: "an endpoint without ports, which a state file may contain, serves the target port of a port without a name",
    parts: {
      ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 0, targetPort: 8080 }],
      endpoints: [endpoint("10.0.1.2", { ports: [] })],
    },
    plan: [`${clusterIP}: ${fromPods}`, "cluster: 10.0.1.2:8080"],
  },
  {
    name: "an endpoint's port of such a protocol serves no port",
    parts: { endpoints: [away("10.0.1.1"), endpoint("10.0.1.2", { ports: [{ name: "", port: 8080, protocol: 4 }] })] },
    plan: [`${clusterIP}: ${fromPods}`, "cluster: 10.0.1.1:8080"],
  },
  {
    name: "IPv6 has its own addresses",
    parts: { ips: ["10.96.0.10", "fd00:96::a"], externalIPs: ["1.1.1.1", "2001:db8::9"], endpoints: [away("fd00::7")] },
    node: { family: "v6" },
    plan: [
      `clusterIP [fd00:96::a]:80/TCP: ${fromPods}`,
      "externalIP [2001:db8::9]:80/TCP: cluster masqueraded",
      "cluster: [fd00::7]:8080",
    ],
  },
];

const external: readonly Row[] = [
  {
    name: "external policy Local keeps the address of outside clients; pods and the node use all endpoints",
    parts: { ...balancer, externalTrafficPolicy: "Local", endpoints: [here("10.0.0.1"), away("10.0.1.1")] },
    plan: [
      `${clusterIP}: ${fromPods}`,
      `${loadBalancerIP}: pod cluster, node cluster masqueraded, outside local`,
      "cluster: 10.0.0.1:8080 10.0.1.1:8080",
      "local: 10.0.0.1:8080",
      // A pod of another node may reach itself by way of this node, too.
      "hairpin: 10.0.0.1 10.0.1.1",
    ],
  },
  {
    name: "external policy Local drops outside packets if only other nodes have endpoints",
    parts: { ...balancer, externalTrafficPolicy: "Local", endpoints: [away("10.0.1.1")] },
    node: { podTraffic: undefined },
    plan: [
      `${clusterIP}: cluster`,
      `${loadBalancerIP}: pod cluster, node cluster masqueraded, outside drop`,
      "cluster: 10.0.1.1:8080",
    ],
  },
  {
    name: "external policy Local treats pods and the node as outside if the cluster set is empty",
    parts: {
      ...balancer,
      externalTrafficPolicy: "Local",
      endpoints: [{ ...here("10.0.0.1"), use: { cluster: false, local: true } }],
    },
    plan: [`${clusterIP}: drop`, `${loadBalancerIP}: local`, "local: 10.0.0.1:8080", "hairpin: 10.0.0.1"],
  },
  {
    name: "source ranges of the family hold for load-balancer IPs alone, in their canonical form",
    parts: {
      ...balancer,
      externalIPs: ["9.9.9.9"],
      ports: [port(80, { nodePort: 30_081 })],
      ipFilters: [{ sourceRanges: ["203.0.113.9/25", " 203.0.113.0/25", "fd00::/8"] }],
    },
    plan: [
      `${clusterIP}: refuse`,
      "externalIP 9.9.9.9:80/TCP: refuse",
      `${loadBalancerIP} for 203.0.113.0/25: refuse`,
      "nodePort 30081/TCP: refuse",
    ],
  },
  {
    name: "source ranges of the other family let everybody through, and so does a range of length 0",
    parts: {
      ...balancer,
      loadBalancerIPs: ["5.6.7.8", "5.6.7.9"],
      ipFilters: [
        { sourceRanges: ["fd00::/8"] },
        { targetIPs: { v4: ["5.6.7.9"], v6: [] }, sourceRanges: ["10.0.0.0/8", "0.0.0.0/0"] },
      ],
    },
    plan: [`${clusterIP}: refuse`, `${loadBalancerIP}: refuse`, "loadBalancerIP 5.6.7.9:80/TCP: refuse"],
  },
  {
    name: "an external IP that is a load-balancer IP, too, is one frontend, for the clients of the load-balancer IP",
    parts: { ...balancer, externalIPs: ["5.6.7.8"], ipFilters: [{ sourceRanges: ["203.0.113.0/25"] }] },
    plan: [`${clusterIP}: refuse`, `${loadBalancerIP} for 203.0.113.0/25: refuse`],
  },
];

const whole: readonly Row[] = [
  {
    name: "a Service has a whole address for each of its addresses, with endpoints at no port, beside its ports",
    parts: {
      ...{ mapIP: true, ...balancer, externalIPs: ["9.9.9.9"], ports: [port(80, { nodePort: 30_081 })] },
      endpoints: [away("10.0.1.9"), away("10.0.1.10")],
    },
    plan: [
      `${clusterIP}: ${fromPods}`,
      "externalIP 9.9.9.9:80/TCP: cluster masqueraded",
      `${loadBalancerIP}: cluster masqueraded`,
      "nodePort 30081/TCP: cluster masqueraded",
      "cluster: 10.0.1.10:8080 10.0.1.9:8080",
      `clusterIP 10.96.0.10 as a whole: ${fromPods}`,
      "externalIP 9.9.9.9 as a whole: cluster masqueraded",
      "loadBalancerIP 5.6.7.8 as a whole: cluster masqueraded",
      "cluster: 10.0.1.10 10.0.1.9",
    ],
  },
  {
    name: "ports of a headless Service have no frontends",
    parts: { mapIP: true, isHeadless: true, ips: [], externalIPs: ["9.9.9.9"], endpoints: [away("10.0.1.1")] },
    plan: ["externalIP 9.9.9.9 as a whole: cluster masqueraded", "cluster: 10.0.1.1"],
  },
  {
    name: "an endpoint that any port may use is an endpoint of the whole address",
    parts: {
      mapIP: true,
      ports: [port(80), port(81, { name: "other" })],
      endpoints: [away("10.0.1.1"), endpoint("10.0.1.2", { ports: [{ name: "other", port: 81 }] })],
    },
    plan: [
      `${clusterIP}: ${fromPods}`,
      "cluster: 10.0.1.1:8080",
      `clusterIP 10.96.0.10:81/TCP: ${fromPods}`,
      "cluster: 10.0.1.2:81",
      `clusterIP 10.96.0.10 as a whole: ${fromPods}`,
      "cluster: 10.0.1.1 10.0.1.2",
    ],
  },
  {
    name: "policy Local drops packets to a whole address if only other nodes have endpoints",
    parts: { mapIP: true, internalTrafficPolicy: "Local", portHasEndpoints: elsewhere },
    plan: [`${clusterIP}: drop`, "clusterIP 10.96.0.10 as a whole: drop"],
  },
  {
    name: "a Service of the other family has no whole address",
    parts: { mapIP: true, ips: ["fd00::1"], endpoints: [here("10.0.0.1")] },
    plan: [],
  },
  {
    name: "a headless Service without other addresses has none",
    parts: { mapIP: true, isHeadless: true, ips: [] },
    plan: [],
  },
];

describe.each([
  { what: "whole addresses", rows: whole },
  { what: "cluster IPs", rows: internal },
  { what: "addresses that the outside can reach", rows: external },
])("$what", ({ rows }) => {
  test.each(rows)("$name", ({ parts, node, plan }) => {
    expect(describePlan(planService(service("ns/web", parts), nodePlan(node)))).toEqual(plan);
  });
});

test("ports are told apart by name and protocol; an endpoint port without a protocol serves any", () => {
  const ports = [
    port(53, { name: "dns", protocol: "UDP" }),
    port(53, { name: "dns-tcp" }),
    port(9, { name: "s", protocol: "SCTP" }),
  ];
  const endpoints = [
    endpoint("10.0.1.1", {
      ports: [
        { name: "dns", port: 1053, protocol: "UDP" },
        { name: "dns-tcp", port: 2053, protocol: "UDP" },
        { name: "s", port: 9009 },
      ],
    }),
  ];
  const plan = planService(service("ns/dns", { ports, endpoints }), nodePlan());
  expect(plan.ports.map(({ name, sets }) => [name, ...sets.cluster.map((each) => each.port)])).toEqual([
    ["ns/dns:dns", 1053],
    ["ns/dns:dns-tcp"],
    ["ns/dns:s", 9009],
  ]);
});

test("an invalid address or port number is left out", () => {
  const bad = endpoint("10.0.1.1", {
    ports: [{ name: "", port: 0 }],
    addresses: { v4: ["10.0.1.1 -j ACCEPT"], v6: [] },
    isOnNode: true,
  });
  const web = service("ns/web", { ports: [port(80), port(0), port(81, { nodePort: 70_000 })], endpoints: [bad] });
  const view = { ...web, service: { ...web.service, clusterIPs: { v4: ["x"], v6: [] } } };
  expect(planService(view, nodePlan())).toMatchObject({ ports: [{ port: 80, frontends: [] }], hairpin: [] });
});

test("a load-balancer IP that is the unspecified address is left out, and the Service's other addresses stay", () => {
  const web = service("ns/web", { ips: ["10.96.0.1"], loadBalancerIPs: ["0.0.0.0", "198.51.100.1"] });
  const { ports } = planService(web, nodePlan());
  const addresses = ports.flatMap(({ frontends }) => frontends.map(({ address }) => address));
  expect([...new Set(addresses)]).toEqual(["10.96.0.1", "198.51.100.1"]);
});

test("equal views give equal plans, whatever the order of the endpoints", () => {
  onRandomStates(300, (state, family) => {
    for (const view of state.view.services.values()) {
      const reversed = structuredClone({ ...view, endpoints: view.endpoints.toReversed() });
      const node = nodePlanOf(state, family);
      expect(planService(reversed, structuredClone(node))).toEqual(planService(view, node));
    }
  });
});

test("no route leads to an empty set, and no two frontends of a Service are equal", () => {
  onRandomStates(300, (state, family) => {
    for (const view of state.view.services.values()) {
      const { ports } = planService(view, nodePlanOf(state, family));
      const places = ports.flatMap(({ frontends, sets }) =>
        frontends.map(({ address, protocol, port, routes }) => {
          for (const route of Object.values(routes)) {
            if (route.kind === "balance") expect(sets[route.set]).not.toEqual([]);
          }
          return `${address} ${protocol} ${port}`;
        }),
      );
      expect(new Set(places).size).toBe(places.length);
    }
  });
});

test("external IPs of a Service beyond 10 000 frontends are omitted, and its cluster IP is served", () => {
  const ports = Array.from({ length: 300 }, (_, at) => port(1 + at, { name: `p${at}` }));
  const externalIPs = Array.from({ length: 300 }, (_, at) => `203.0.${at >> 8}.${at & 255}`);
  const plan = planService(service("a/web", { ports, externalIPs, endpoints: [] }), nodePlan());
  const kinds = plan.ports.flatMap(({ frontends }) => frontends.map(({ kind }) => kind));
  expect(kinds.filter((kind) => kind === "clusterIP")).toHaveLength(300);
  expect(kinds.filter((kind) => kind === "externalIP")).toHaveLength(9_900);
  expect(maxExternalFrontends).toBe(10_000);
  expect(plan.omittedExternalIPs).toBe(267);
});
