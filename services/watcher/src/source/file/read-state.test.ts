import assert from "node:assert/strict";
import { test } from "vitest";
import { input, readGood, state, toFile } from "./testing/texts.ts";

test("state: an input file of KPNG and the file that KPNG wrote from it give the same cluster", () => {
  const byPod = (text: string) => {
    const { services, slices, nodes } = readGood(text);
    const sorted = slices.map((slice) => ({
      ...slice,
      endpoints: slice.endpoints.toSorted((a, b) => (a.addresses.v4[0] ?? "").localeCompare(b.addresses.v4[0] ?? "")),
    }));
    return {
      services: services.toSorted((a, b) => a.name.localeCompare(b.name)),
      sorted,
      nodes: nodes.map((node) => node.name),
    };
  };
  const fromInput = byPod(input);
  assert.deepEqual(fromInput, byPod(toFile));
  assert.deepEqual(fromInput.sorted[0]?.endpoints[0], {
    addresses: { v4: ["10.1.0.1"], v6: ["fd01::1"] },
    ports: [
      { name: "http", port: 8080 },
      { name: "dns", port: 5353 },
    ],
    conditions: { ready: true, serving: true, terminating: false },
    podName: "web-1",
    hostname: "h1",
    nodeName: "n1",
    zone: "za",
    hintedZones: [],
    hintedNodes: [],
  });
});

test("state: a minimal Service and Node get KPNG's defaults, and absent IPs stay absent", () => {
  const { services, nodes, slices } = readGood(
    "nodes: [{name: n1}]\nservices: [{service: {name: web, ports: [{port: 80}]}}]",
  );
  assert.deepEqual(nodes, [
    { name: "n1", zone: "", labels: {}, annotations: {}, addresses: [], podCIDRs: [], isEligible: true },
  ]);
  assert.deepEqual(slices, []);
  assert.deepEqual(services, [
    {
      namespace: "default",
      name: "web",
      type: "ClusterIP",
      proxyName: "",
      labels: {},
      annotations: {},
      isHeadless: false,
      clusterIPs: undefined,
      externalIPs: undefined,
      loadBalancerIPs: undefined,
      proxyModeLoadBalancerIPs: { v4: [], v6: [] },
      ipFilters: [],
      mapIP: false,
      ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 0, targetPort: 0 }],
      internalTrafficPolicy: "Cluster",
      externalTrafficPolicy: "Cluster",
      clientIPAffinitySeconds: undefined,
      healthCheckNodePort: 0,
    },
  ]);
});

test("state: null is the same as absent for all fields", () => {
  const text = `nodes: null
services:
- service: {name: web, namespace: null, type: null, labels: null, ips: null, ipfilters: null, ports: null, sessionaffinity: null}
  endpoints:
  - {podname: null, endpoint: {ips: {v4: [10.1.0.1], v6: null}, portoverrides: null, scopes: null}, conditions: null, topology: null, hints: null}
- service: {name: b, ips: {clusterips: null, externalips: null, loadbalancerips: null}, sessionaffinity: {clientip: null}}
  endpoints: null
`;
  const { services, slices } = readGood(text);
  assert.equal(services[0]?.namespace, "default");
  assert.equal(slices[0]?.endpoints[0]?.conditions.ready, true);
});

test("state: session affinity is read (KPNG failed on it)", () => {
  const { services } = readGood("services: [{service: {name: a, sessionaffinity: {clientip: {timeoutseconds: 60}}}}]");
  assert.equal(services[0]?.clientIPAffinitySeconds, 60);
});

test("state: our own keys hold what KPNG's keys cannot", () => {
  const { services, slices, nodes } = readGood(`
nodes: [{name: n1, addresses: [10.9.0.1], podcidrs: [10.1.0.0/24], iseligible: false}]
services:
- service: {name: web, proxyname: other, proxymodeloadbalancerips: {v4: [192.0.2.1]}}
  endpoints:
  - endpoint: {ips: {v4: [10.1.0.1]}, portoverrides: [{name: a, port: 1, protocol: 2}]}
    conditions: {ready: false, serving: true, terminating: true}
    hints: {zones: [b, a], nodes: [n2, n1]}
`);
  assert.deepEqual(nodes[0], {
    name: "n1",
    zone: "",
    labels: {},
    annotations: {},
    addresses: ["10.9.0.1"],
    podCIDRs: ["10.1.0.0/24"],
    isEligible: false,
  });
  assert.equal(services[0]?.proxyName, "other");
  assert.deepEqual(services[0]?.proxyModeLoadBalancerIPs.v4, ["192.0.2.1"]);
  const [endpoint] = slices[0]?.endpoints ?? [];
  assert.deepEqual(endpoint?.conditions, { ready: false, serving: true, terminating: true });
  assert.deepEqual(endpoint?.ports, [{ name: "a", port: 1, protocol: "UDP" }]);
  assert.deepEqual(
    [endpoint?.hintedZones, endpoint?.hintedNodes],
    [
      ["a", "b"],
      ["n1", "n2"],
    ],
  );
});

test("state: an endpoint belongs to the Service that contains it and to the slice named by sourcename", () => {
  const { slices } = readGood(
    state(
      "{namespace: x, servicename: y, podname: p1, endpoint: {ips: {v4: [10.1.0.1]}}}",
      "{sourcename: web, podname: p2, endpoint: {ips: {v4: [10.1.0.2]}}}",
      "{sourcename: web-abc, podname: p1, endpoint: {ips: {v4: [10.1.0.3]}}}",
    ),
  );
  assert.deepEqual(
    slices.map(({ namespace, serviceName, name, hasPodKeys, endpoints }) => [
      namespace,
      serviceName,
      name,
      hasPodKeys,
      endpoints.length,
    ]),
    [
      ["default", "web", "web", true, 2],
      ["default", "web", "web-abc", false, 1],
    ],
  );
});

test("state: a repeated pod gets a separate slice, so that keys are unique", () => {
  const again = (address: string) => `{podname: p1, endpoint: {ips: {v4: [${address}]}}}`;
  const { slices } = readGood(
    state(again("10.1.0.1"), again("10.1.0.2"), again("10.1.0.3"), "{endpoint: {ips: {v4: [10.1.0.4]}}}"),
  );
  assert.deepEqual(
    slices.map(({ name, hasPodKeys, endpoints }) => [
      name,
      hasPodKeys,
      endpoints.map((endpoint) => endpoint.addresses.v4[0]),
    ]),
    [
      ["web", true, ["10.1.0.1", "10.1.0.4"]],
      ["web~2", false, ["10.1.0.2"]],
      ["web~3", false, ["10.1.0.3"]],
    ],
  );
});

test("state: conditions without ready mean not ready, as in KPNG", () => {
  const { slices } = readGood(state("{endpoint: {ips: {v4: [10.1.0.1]}}, conditions: {}}"));
  assert.deepEqual(slices[0]?.endpoints[0]?.conditions, { ready: false, serving: false, terminating: false });
});

test("state: an endpoint without addresses is ignored with a note", () => {
  const { slices, notes } = readGood(state("{podname: p1}"));
  assert.deepEqual(slices, []);
  assert.deepEqual(
    notes.map((note) => note.problem),
    ["services[0].endpoints[0]: endpoint ignored: no address"],
  );
});
