import { noAddresses } from "@kpng/model/address.ts";
import type { Service } from "@kpng/model/service.ts";
import { expect, test } from "vitest";
import { addresses, service, servicePort } from "../testing/build.ts";
import { decodeService } from "./decode-service.ts";
import { makeDecodeOptions, showPath } from "./decoded.ts";

const options = makeDecodeOptions({ serviceLabels: ["app*"], serviceAnnotations: ["note"] });

interface Parts {
  readonly metadata?: object;
  readonly spec?: unknown;
  readonly status?: unknown;
}

function decode({ metadata, ...parts }: Parts) {
  return decodeService({ metadata: { name: "web", namespace: "ns", ...metadata }, ...parts }, options);
}

const plain = service({ clusterIPs: noAddresses, ports: [] });

// test/conformance decodes the Services of all scenarios.
test.each<Parts & { rule: string; is: Partial<Service> }>([
  { rule: "null counts as absent", spec: { ports: null, clusterIPs: null, type: null }, is: {} },
  {
    rule: "clusterIPs takes precedence over clusterIP, and addresses are canonical",
    spec: { clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1", "FD00:0::1"] },
    is: { clusterIPs: addresses("10.0.0.1", "fd00::1") },
  },
  {
    rule: "clusterIP is used where clusterIPs is absent",
    spec: { clusterIP: "10.0.0.1" },
    is: { clusterIPs: addresses("10.0.0.1") },
  },
  { rule: "clusterIP None is headless", spec: { clusterIP: "None" }, is: { isHeadless: true } },
  { rule: "None only in clusterIPs is headless, too", spec: { clusterIPs: ["None"] }, is: { isHeadless: true } },
  {
    rule: "only selected labels and annotations are kept",
    metadata: { labels: { app: "a", tier: "b" }, annotations: { note: "n", other: "o" } },
    is: { labels: { app: "a" }, annotations: { note: "n" } },
  },
  {
    rule: "the annotation kpng.dev/map-ip asks for whole addresses, also if annotations are not kept",
    metadata: { annotations: { "kpng.dev/map-ip": "true" } },
    is: { mapIP: true },
  },
  {
    rule: "so does the label of the same name",
    metadata: { labels: { "kpng.dev/map-ip": "true" } },
    is: { mapIP: true },
  },
  {
    rule: "values other than true mean nothing",
    metadata: { annotations: { "kpng.dev/map-ip": "yes" }, labels: { "kpng.dev/map-ip": "" } },
    is: { mapIP: false },
  },
  {
    rule: "ingress IPs without a mode are virtual IPs, and host names are ignored",
    status: { loadBalancer: { ingress: [{ ip: "192.0.2.1" }, { hostname: "lb.example.com" }] } },
    is: { loadBalancerIPs: addresses("192.0.2.1") },
  },
  { rule: "an empty ingress list means no load balancer", status: { loadBalancer: { ingress: [] } }, is: {} },
  {
    rule: "source ranges are trimmed and canonical",
    spec: { loadBalancerSourceRanges: [" 10.1.2.3/8", "fd00::1/64 "] },
    is: { ipFilters: [{ sourceRanges: ["10.0.0.0/8", "fd00::/64"] }] },
  },
  {
    rule: "the protocol defaults to TCP and the target port to the port",
    spec: { ports: [{ port: 80 }, { name: "b", port: 81, targetPort: 0 }] },
    is: {
      ports: [servicePort({ name: "", targetPort: 80 }), servicePort({ name: "b", port: 81, targetPort: 81 })],
    },
  },
  {
    rule: "affinity lasts three hours by default",
    spec: { sessionAffinity: "ClientIP" },
    is: { clientIPAffinitySeconds: 10_800 },
  },
  {
    rule: "proxy name, creation, UID, health-check node port and the name of a target port are kept",
    metadata: {
      creationTimestamp: "2024-05-01T12:00:00Z",
      uid: "0b1c",
      labels: { "service.kubernetes.io/service-proxy-name": "other" },
    },
    spec: { healthCheckNodePort: 32_000, ports: [{ name: "b", port: 81, targetPort: "web", protocol: "SCTP" }] },
    is: {
      ...{ proxyName: "other", createdSeconds: 1_714_564_800, uid: "0b1c", healthCheckNodePort: 32_000 },
      ports: [servicePort({ name: "b", port: 81, targetPort: "web", protocol: "SCTP" })],
    },
  },
  { rule: "a manifest without creation and UID is accepted", metadata: { creationTimestamp: null, uid: "" }, is: {} },
  {
    rule: "an ExternalName Service is accepted",
    spec: { type: "ExternalName", externalName: "example.com" },
    is: { type: "ExternalName" },
  },
])("Service: $rule", ({ is, ...parts }) => {
  expect(decode(parts)).toEqual({ kind: "ok", value: { ...plain, ...is }, notes: [], skipped: [] });
});

test.each<{ what: string; object: unknown; at: string }>([
  { what: "a number in place of an object", object: 7, at: "" },
  { what: "a missing name", object: { metadata: {} }, at: "metadata.name" },
  ...["", "a/b", "a|b", "a b", "a\0", "a".repeat(254)].map((name) => {
    return { what: `the name ${name}`, object: { metadata: { name } }, at: "metadata.name" };
  }),
  { what: "a bar in a namespace", object: { metadata: { name: "a", namespace: "a|b" } }, at: "metadata.namespace" },
  { what: "ports that are not a list", object: { metadata: { name: "a" }, spec: { ports: {} } }, at: "spec.ports" },
])("Service: $what is invalid, and the problem names the field", ({ object, at }) => {
  const decoded = decodeService(object, options);
  expect([decoded.kind, decoded.kind === "bad" && showPath(decoded.path)]).toEqual(["bad", at]);
});

test("Service: each invalid part is skipped alone, and a problem names its field", () => {
  const decoded = decode({
    metadata: { creationTimestamp: "yesterday", uid: "0b1c" },
    spec: {
      type: "Ingress",
      clusterIPs: ["10.0.0.1", "10.0.0"],
      externalIPs: ["fe80::1%eth0", "192.0.2.1"],
      loadBalancerSourceRanges: ["10.0.0.0/33", "10.0.0.0/8"],
      ports: [
        { port: 0 },
        { port: 1, nodePort: 65_536, targetPort: "8080" },
        { port: 1, protocol: "QUIC" },
        { name: "b", port: 2 },
      ],
      sessionAffinity: "ClientIP",
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } },
    },
    status: { loadBalancer: { ingress: [{ ip: "x" }, { ip: "192.0.2.1" }] } },
  });
  expect(decoded).toMatchObject({
    kind: "ok",
    value: {
      ...{ uid: "0b1c", type: "ClusterIP", clientIPAffinitySeconds: 10_800 },
      clusterIPs: addresses("10.0.0.1"),
      externalIPs: addresses("192.0.2.1"),
      loadBalancerIPs: addresses("192.0.2.1"),
      ipFilters: [{ sourceRanges: ["10.0.0.0/8"] }],
      ports: [servicePort({ name: "", port: 1, targetPort: 1 }), servicePort({ name: "b", port: 2, targetPort: 2 })],
    },
  });
  const skipped = decoded.kind === "ok" ? decoded.skipped.map(({ path }) => showPath(path)) : [];
  expect(skipped.sort()).toEqual([
    "metadata.creationTimestamp",
    "spec.clusterIPs[1]",
    "spec.externalIPs[0]",
    "spec.loadBalancerSourceRanges[0]",
    "spec.ports[0].port",
    "spec.ports[1].nodePort",
    "spec.ports[1].targetPort",
    "spec.ports[2].protocol",
    "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
    "spec.type",
    "status.loadBalancer.ingress[0].ip",
  ]);
});

test.each([
  { ranges: ["10.0.0.0/33"], left: noAddresses },
  { ranges: ["10.0.0.0/33", "10.0.0.0/8"], left: addresses("192.0.2.1") },
  { ranges: ["fd00::/129", "fd00::/8"], left: addresses("2001:db8::1") },
  { ranges: ["10.0.0.0/8"], left: addresses("192.0.2.1", "2001:db8::1") },
])("Service: with source ranges $ranges, no load-balancer IP is open because a range was skipped", (row) => {
  const ingress = [{ ip: "192.0.2.1" }, { ip: "2001:db8::1" }];
  const decoded = decode({ spec: { loadBalancerSourceRanges: row.ranges }, status: { loadBalancer: { ingress } } });
  expect(decoded).toMatchObject({ kind: "ok", value: { loadBalancerIPs: row.left } });
});

test.each([
  { labels: { "service.kubernetes.io/service-proxy-name": "" }, kind: "skip" },
  { labels: { "service.kubernetes.io/headless": "" }, kind: "skip" },
  { labels: { "service.kubernetes.io/headless": "", "service.kubernetes.io/service-proxy-name": "x" }, kind: "ok" },
])("a Service with the labels $labels is decoded to $kind", ({ labels, kind }) => {
  expect(decode({ metadata: { labels } }).kind).toBe(kind);
});
