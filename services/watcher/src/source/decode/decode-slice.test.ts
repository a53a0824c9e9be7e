import assert from "node:assert/strict";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import { test } from "vitest";
import { decodeSlice } from "./decode-slice.ts";
import { showPath } from "./decoded.ts";

const labels = { "kubernetes.io/service-name": "web" };

function object(parts: object): unknown {
  const ports = [{ name: "http", port: 8080 }];
  return { metadata: { name: "web-a", namespace: "shop", labels }, addressType: "IPv4", ports, ...parts };
}

function endpoint(parts: object): unknown {
  return object({ endpoints: [{ addresses: ["10.1.0.1"], ...parts }] });
}

const headless = { "service.kubernetes.io/headless": "" };

const plain: Endpoint = {
  addresses: { v4: ["10.1.0.1"], v6: [] },
  ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  conditions: { ready: true, serving: true, terminating: false },
  podName: "",
  hostname: "",
  nodeName: "",
  zone: "",
  hintedZones: [],
  hintedNodes: [],
};

const slice: EndpointSlice = {
  namespace: "shop",
  name: "web-a",
  serviceName: "web",
  endpoints: [],
  hasPodKeys: false,
  triggeredAtMs: undefined,
};

const endpointTable: readonly { name: string; object: unknown; is: Partial<Endpoint>; notes?: readonly string[] }[] = [
  { name: "absent conditions mean ready and serving", object: endpoint({}), is: {} },
  {
    name: "an absent serving condition means serving, even if not ready",
    object: endpoint({ conditions: { ready: false } }),
    is: { conditions: { ready: false, serving: true, terminating: false } },
  },
  {
    name: "conditions are kept",
    object: endpoint({ conditions: { ready: false, serving: false, terminating: true } }),
    is: { conditions: { ready: false, serving: false, terminating: true } },
  },
  {
    name: "node, zone, host name and pod are kept",
    object: endpoint({ nodeName: "n1", zone: "za", hostname: "h", targetRef: { kind: "Pod", name: "web-1" } }),
    is: { nodeName: "n1", zone: "za", hostname: "h", podName: "web-1" },
  },
  {
    name: "a target other than a pod has no pod name",
    object: endpoint({ targetRef: { kind: "Node", name: "n" } }),
    is: {},
  },
  {
    name: "hints are sorted",
    object: endpoint({
      hints: { forZones: [{ name: "b" }, { name: "a" }], forNodes: [{ name: "n2" }, { name: "n1" }] },
    }),
    is: { hintedZones: ["a", "b"], hintedNodes: ["n1", "n2"] },
  },
  {
    name: "all addresses are kept in order",
    object: endpoint({ addresses: ["10.1.0.9", "10.1.0.1"] }),
    is: { addresses: { v4: ["10.1.0.9", "10.1.0.1"], v6: [] } },
  },
  {
    name: "IPv6 addresses are canonical",
    object: object({ addressType: "IPv6", endpoints: [{ addresses: ["FD01:0:0::1"] }] }),
    is: { addresses: { v4: [], v6: ["fd01::1"] } },
  },
  {
    name: "ports without a number are ignored, absent names are empty, and the protocol defaults to TCP",
    object: object({
      endpoints: [{ addresses: ["10.1.0.1"] }],
      ports: [{ port: 1 }, { name: null, port: 2 }, { name: "a" }, { name: "b", port: 0 }, { name: "", port: 80 }],
    }),
    is: { ports: [1, 2, 80].map((port) => ({ name: "", port, protocol: "TCP" })) },
    notes: ['port 2 ("a") ignored: no port number', 'port 3 ("b") ignored: no port number'],
  },
];

for (const { name, object, is, notes } of endpointTable) {
  test(`EndpointSlice: ${name}`, () => {
    const value = { ...slice, endpoints: [{ ...plain, ...is }] };
    assert.deepEqual(decodeSlice(object), { kind: "ok", value, notes: notes ?? [], skipped: [] });
  });
}

for (const empty of [{}, { ports: null, endpoints: null }, { ports: [], endpoints: [] }]) {
  test(`EndpointSlice: ${JSON.stringify(empty)} has no endpoints`, () => {
    assert.deepEqual(decodeSlice(object(empty)), { kind: "ok", value: slice, notes: [], skipped: [] });
  });
}

for (const ports of [undefined, [], [{ name: "" }]]) {
  const parts = { endpoints: [{ addresses: ["10.1.0.1"] }], ports };

  test(`EndpointSlice: with ports ${JSON.stringify(ports)} it has no usable endpoints`, () => {
    const decoded = decodeSlice(object(parts));
    assert.equal(decoded.kind, "ok");
    assert.deepEqual(decoded.value, slice);
    assert.equal(decoded.notes.at(-1), "endpoints ignored: the slice has no port");
  });

  test(`EndpointSlice: with ports ${JSON.stringify(ports)} it has endpoints if it is headless and has a proxy name`, () => {
    const metadata = {
      name: "web-a",
      namespace: "shop",
      labels: { ...labels, ...headless, "service.kubernetes.io/service-proxy-name": "allip" },
    };
    const decoded = decodeSlice(object({ ...parts, metadata }));
    assert.equal(decoded.kind, "ok");
    assert.deepEqual(decoded.value.endpoints, [{ ...plain, ports: [] }]);
  });
}

test("EndpointSlice: an endpoint without addresses is ignored", () => {
  const decoded = decodeSlice(endpoint({ addresses: [] }));
  assert.deepEqual(decoded, { kind: "ok", value: slice, notes: ["endpoint 0 ignored: no address"], skipped: [] });
});

const timeTable: readonly [string, number | undefined][] = [
  ["2024-05-06T07:08:09Z", Date.UTC(2024, 4, 6, 7, 8, 9)],
  ["2024-05-06T07:08:09.123456789Z", Date.UTC(2024, 4, 6, 7, 8, 9, 123)],
  ["2024-05-06T09:08:09+02:00", Date.UTC(2024, 4, 6, 7, 8, 9)],
  ["2024-13-06T07:08:09Z", undefined],
  ["yesterday", undefined],
  ["2024", undefined],
];
for (const [text, ms] of timeTable) {
  test(`EndpointSlice: the trigger time ${text} is ${ms}`, () => {
    const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": text };
    const decoded = decodeSlice(object({ metadata: { name: "web-a", namespace: "shop", labels, annotations } }));
    assert.deepEqual(decoded, { kind: "ok", value: { ...slice, triggeredAtMs: ms }, notes: [], skipped: [] });
  });
}

test("EndpointSlice: a slice of host names is skipped", () => {
  const decoded = decodeSlice(object({ addressType: "FQDN", endpoints: [{ addresses: ["example.com"] }] }));
  assert.equal(decoded.kind, "skip");
});

for (const labels of [undefined, null, {}, { "kubernetes.io/service-name": "" }]) {
  test(`EndpointSlice: labels ${JSON.stringify(labels)} without a Service name are skipped`, () => {
    assert.equal(decodeSlice(object({ metadata: { name: "web-a", labels } })).kind, "skip");
  });
}

const badTable: readonly { name: string; object: unknown; at: string; says: RegExp }[] = [
  { name: "a text in place of an object", object: "x", at: "", says: /expected object/ },
  {
    name: "a missing address type",
    object: object({ addressType: undefined }),
    at: "addressType",
    says: /not one of IPv4/,
  },
  {
    name: "an invalid Service name",
    object: object({ metadata: { name: "a", labels: { "kubernetes.io/service-name": "a|b" } } }),
    at: 'metadata.labels["kubernetes.io/service-name"]',
    says: /"a\|b"/,
  },
];

for (const { name, object, at, says } of badTable) {
  test(`EndpointSlice: ${name} is invalid, and the problem names the field`, () => {
    const decoded = decodeSlice(object);
    assert.equal(decoded.kind, "bad");
    assert.equal(showPath(decoded.path), at);
    assert.match(decoded.problem, says);
  });
}

const partTable: readonly {
  name: string;
  object: unknown;
  at: string;
  says: RegExp;
  is: readonly Endpoint[];
}[] = [
  {
    name: "an invalid address",
    object: endpoint({ addresses: ["10.1.0.1", "10.1"] }),
    at: "endpoints[0].addresses[1]",
    says: /"10.1" is not an IP address/,
    is: [{ ...plain }],
  },
  {
    name: "an address of the other family",
    object: endpoint({ addresses: ["fd01::1"] }),
    at: "endpoints[0].addresses[0]",
    says: /"fd01::1" does not match addressType IPv4/,
    is: [],
  },
  {
    name: "a slash in a pod name",
    object: endpoint({ targetRef: { kind: "Pod", name: "a/b" } }),
    at: "endpoints[0].targetRef.name",
    says: /"a\/b"/,
    is: [{ ...plain }],
  },
  {
    name: "a newline in a node name",
    object: endpoint({ nodeName: "a\nb" }),
    at: "endpoints[0].nodeName",
    says: /not a valid name/,
    is: [{ ...plain }],
  },
  {
    name: "a port out of range",
    object: object({
      endpoints: [{ addresses: ["10.1.0.1"] }],
      ports: [
        { name: "", port: 70_000 },
        { name: "b", port: 2 },
      ],
    }),
    at: "ports[0].port",
    says: /70000/,
    is: [{ ...plain, ports: [{ name: "b", port: 2, protocol: "TCP" }] }],
  },
  {
    name: "a bar in a port name",
    object: object({
      endpoints: [{ addresses: ["10.1.0.1"] }],
      ports: [
        { name: "a|b", port: 1 },
        { name: "b", port: 2 },
      ],
    }),
    at: "ports[0].name",
    says: /not a valid name/,
    is: [{ ...plain, ports: [{ name: "b", port: 2, protocol: "TCP" }] }],
  },
  {
    name: "a condition that is a text",
    object: endpoint({ conditions: { ready: "true" } }),
    at: "endpoints[0].conditions.ready",
    says: /expected boolean/,
    is: [],
  },
  {
    name: "an endpoint whose only address is invalid",
    object: object({ endpoints: [{ addresses: ["010.1.2.3"] }, { addresses: ["10.1.0.1"] }] }),
    at: "endpoints[0].addresses[0]",
    says: /"010.1.2.3" is not an IP address/,
    is: [{ ...plain }],
  },
  {
    name: "a port with an unknown protocol",
    object: object({
      endpoints: [{ addresses: ["10.1.0.1"] }],
      ports: [
        { port: 1, protocol: "QUIC" },
        { name: "b", port: 2 },
      ],
    }),
    at: "ports[0].protocol",
    says: /"QUIC" is not one of/,
    is: [{ ...plain, ports: [{ name: "b", port: 2, protocol: "TCP" }] }],
  },
];

for (const { name, object, at, says, is } of partTable) {
  test(`EndpointSlice: ${name} is skipped alone, and the problem names the field`, () => {
    const decoded = decodeSlice(object);
    assert.equal(decoded.kind, "ok");
    assert.deepEqual(decoded.value.endpoints, is);
    const [first, ...others] = decoded.skipped;
    assert.deepEqual(others, []);
    assert.equal(showPath(first?.path ?? []), at);
    assert.match(first?.problem ?? "", says);
  });
}

for (const value of ["", "true", "false"]) {
  test(`EndpointSlice: a slice with the headless label ${JSON.stringify(value)} is skipped, with ports or without`, () => {
    const metadata = { name: "web-a", labels: { ...labels, "service.kubernetes.io/headless": value } };
    for (const ports of [[], [{ name: "http", port: 8080 }]]) {
      const decoded = decodeSlice(object({ endpoints: [{ addresses: ["10.1.0.1"] }], ports, metadata }));
      assert.deepEqual(decoded, { kind: "skip", note: "the slice has the label service.kubernetes.io/headless" });
    }
  });
}
