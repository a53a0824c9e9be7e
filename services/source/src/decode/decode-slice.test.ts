import type { Endpoint } from "@kpng/model/endpoint.ts";
import { describe, expect, test } from "vitest";
import { addresses, endpoint, slice } from "../testing/build.ts";
import { decodeSlice } from "./decode-slice.ts";
import { showPath } from "./decoded.ts";

const labels = { "kubernetes.io/service-name": "web" };
const headless = "service.kubernetes.io/headless";

function decode(parts: object, metadata: object = {}) {
  const ports = [{ name: "http", port: 8080 }];
  return decodeSlice({
    ...{ metadata: { name: "web-a", namespace: "ns", labels, ...metadata }, addressType: "IPv4", ports },
    ...parts,
  });
}

const plain = endpoint("10.1.0.1", { nodeName: "" });

// test/conformance decodes the slices of all scenarios, which have nodes, zones, hints and conditions.
test.each<{ rule: string; given: object; is: Partial<Endpoint> }>([
  { rule: "absent conditions mean ready and serving", given: {}, is: {} },
  {
    rule: "an absent serving condition means serving, even if not ready",
    given: { conditions: { ready: false } },
    is: { conditions: { ready: false, serving: true, terminating: false } },
  },
  {
    rule: "host name and pod are kept",
    given: { hostname: "h", targetRef: { kind: "Pod", name: "web-1" } },
    is: { hostname: "h", podName: "web-1" },
  },
  { rule: "a target other than a pod has no pod name", given: { targetRef: { kind: "Node", name: "n" } }, is: {} },
  {
    rule: "hints are sorted",
    given: { hints: { forZones: [{ name: "b" }, { name: "a" }], forNodes: [{ name: "n2" }, { name: "n1" }] } },
    is: { hintedZones: ["a", "b"], hintedNodes: ["n1", "n2"] },
  },
  {
    rule: "all addresses are kept in order",
    given: { addresses: ["10.1.0.9", "10.1.0.1"] },
    is: { addresses: addresses("10.1.0.9", "10.1.0.1") },
  },
])("EndpointSlice: $rule", ({ given, is }) => {
  expect(decode({ endpoints: [{ addresses: ["10.1.0.1"], ...given }] })).toEqual({
    ...{ kind: "ok", notes: [], skipped: [] },
    value: slice([{ ...plain, ...is }]),
  });
});

test("EndpointSlice: IPv6 addresses are canonical", () => {
  const decoded = decode({ addressType: "IPv6", endpoints: [{ addresses: ["FD01:0:0::1"] }] });
  expect(decoded).toMatchObject({ value: { endpoints: [{ addresses: addresses("fd01::1") }] } });
});

test("EndpointSlice: ports without a number are ignored, absent names are empty, and the protocol defaults to TCP", () => {
  const ports = [{ port: 1 }, { name: null, port: 2 }, { name: "a" }, { name: "b", port: 0 }, { name: "", port: 80 }];
  const decoded = decode({ ports, endpoints: [{ addresses: ["10.1.0.1"] }] });
  const numbered = [1, 2, 80].map((port) => ({ name: "", port, protocol: "TCP" }));
  expect(decoded).toMatchObject({ kind: "ok", value: { endpoints: [{ ports: numbered }] } });
});

test.each([
  { what: "nothing", given: {} },
  { what: "null", given: { ports: null, endpoints: null } },
  { what: "an endpoint without addresses", given: { endpoints: [{ addresses: [] }] } },
])("EndpointSlice: with $what, it has no endpoints", ({ given }) => {
  expect(decode(given)).toMatchObject({ kind: "ok", value: { endpoints: [] }, skipped: [] });
});

describe.each([undefined, [], [{ name: "" }]])("EndpointSlice: with ports %j", (ports) => {
  const parts = { endpoints: [{ addresses: ["10.1.0.1"] }], ports };

  test("it has no usable endpoints, and a note says so", () => {
    const decoded = decode(parts);
    expect(decoded).toMatchObject({ kind: "ok", value: { endpoints: [] } });
    expect(decoded.kind === "ok" && decoded.notes.at(-1)).toBe("endpoints ignored: the slice has no port");
  });

  test.each([
    { what: "a proxy name", label: { "service.kubernetes.io/service-proxy-name": "allip" } },
    { what: "whole addresses", label: { "kpng.dev/map-ip": "true" } },
  ])("it has endpoints if it is headless and has $what", ({ label }) => {
    const given = { labels: { ...labels, [headless]: "", ...label } };
    expect(decode(parts, given)).toMatchObject({ value: { endpoints: [{ ...plain, ports: [] }] } });
  });
});

test.each([
  ["2024-05-06T07:08:09.123456789Z", Date.UTC(2024, 4, 6, 7, 8, 9, 123)],
  ["2024-05-06T09:08:09+02:00", Date.UTC(2024, 4, 6, 7, 8, 9)],
  ["2024-13-06T07:08:09Z", undefined],
  ["2024", undefined],
])("EndpointSlice: the trigger time %s is %j", (text, triggeredAtMs) => {
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": text };
  expect(decode({}, { annotations })).toMatchObject({ kind: "ok", value: { triggeredAtMs } });
});

test.each<{ what: string; given?: object; metadata?: object }>([
  { what: "host names", given: { addressType: "FQDN", endpoints: [{ addresses: ["example.com"] }] } },
  { what: "no labels", metadata: { labels: null } },
  { what: "an empty Service name", metadata: { labels: { "kubernetes.io/service-name": "" } } },
  ...["", "false"].map((value) => {
    return { what: `the headless label "${value}"`, metadata: { labels: { ...labels, [headless]: value } } };
  }),
])("EndpointSlice: a slice with $what is skipped, with ports or without", ({ given, metadata }) => {
  for (const more of [{}, { ports: [] }]) expect(decode({ ...given, ...more }, metadata).kind).toBe("skip");
});

test.each<{ what: string; decoded: ReturnType<typeof decodeSlice>; at: string }>([
  { what: "a text in place of an object", decoded: decodeSlice("x"), at: "" },
  { what: "a missing address type", decoded: decode({ addressType: undefined }), at: "addressType" },
  {
    what: "an invalid Service name",
    decoded: decode({}, { labels: { "kubernetes.io/service-name": "a|b" } }),
    at: 'metadata.labels["kubernetes.io/service-name"]',
  },
])("EndpointSlice: $what is invalid, and the problem names the field", ({ decoded, at }) => {
  expect([decoded.kind, decoded.kind === "bad" && showPath(decoded.path)]).toEqual(["bad", at]);
});

test("EndpointSlice: each invalid part is skipped alone, and a problem names its field", () => {
  const decoded = decode({
    endpoints: [
      { addresses: ["10.1.0.1", "10.1"], targetRef: { kind: "Pod", name: "a/b" }, nodeName: "a\nb" },
      { addresses: ["fd01::1"] },
      { addresses: ["10.1.0.2"], conditions: { ready: "true" } },
      { addresses: ["010.1.2.3"] },
      { addresses: ["10.1.0.3"] },
    ],
    ports: [
      { name: "", port: 70_000 },
      { name: "a|b", port: 1 },
      { port: 1, protocol: "QUIC" },
      { name: "b", port: 2 },
    ],
  });
  const ports = [{ name: "b", port: 2, protocol: "TCP" }] as const;
  const [first, last] = [plain, endpoint("10.1.0.3", { nodeName: "" })].map((one) => ({ ...one, ports }));
  expect(decoded).toMatchObject({ kind: "ok", value: { endpoints: [first, last] } });
  const skipped = decoded.kind === "ok" ? decoded.skipped.map(({ path }) => showPath(path)) : [];
  expect(skipped.sort()).toEqual([
    "endpoints[0].addresses[1]",
    "endpoints[0].nodeName",
    "endpoints[0].targetRef.name",
    "endpoints[1].addresses[0]",
    "endpoints[2].conditions.ready",
    "endpoints[3].addresses[0]",
    "ports[0].port",
    "ports[1].name",
    "ports[2].protocol",
  ]);
});
