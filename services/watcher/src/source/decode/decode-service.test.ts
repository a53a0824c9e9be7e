import assert from "node:assert/strict";
import type { Service } from "@kpng/model/service.ts";
import { test } from "vitest";
import { decodeService } from "./decode-service.ts";
import { makeDecodeOptions, showPath } from "./decoded.ts";

const options = makeDecodeOptions({ serviceLabels: ["app*"], serviceAnnotations: ["note"] });

function object(parts: { metadata?: object; spec?: unknown; status?: unknown }): unknown {
  return { metadata: { name: "web", namespace: "shop", ...parts.metadata }, spec: parts.spec, status: parts.status };
}

const plain: Service = {
  namespace: "shop",
  name: "web",
  type: "ClusterIP",
  proxyName: "",
  labels: {},
  annotations: {},
  isHeadless: false,
  clusterIPs: { v4: [], v6: [] },
  externalIPs: { v4: [], v6: [] },
  loadBalancerIPs: undefined,
  proxyModeLoadBalancerIPs: { v4: [], v6: [] },
  ipFilters: [],
  mapIP: false,
  ports: [],
  internalTrafficPolicy: "Cluster",
  externalTrafficPolicy: "Cluster",
  clientIPAffinitySeconds: undefined,
  healthCheckNodePort: 0,
};

const table: readonly { name: string; object: unknown; is: Partial<Service> }[] = [
  { name: "an absent spec gets all defaults", object: object({}), is: {} },
  { name: "an absent namespace is 'default'", object: { metadata: { name: "web" } }, is: { namespace: "default" } },
  { name: "null counts as absent", object: object({ spec: { ports: null, clusterIPs: null, type: null } }), is: {} },
  {
    name: "clusterIPs takes precedence over clusterIP, and addresses are canonical",
    object: object({ spec: { clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1", "FD00:0::1"] } }),
    is: { clusterIPs: { v4: ["10.0.0.1"], v6: ["fd00::1"] } },
  },
  {
    name: "clusterIP is used where clusterIPs is absent",
    object: object({ spec: { clusterIP: "10.0.0.1" } }),
    is: { clusterIPs: { v4: ["10.0.0.1"], v6: [] } },
  },
  { name: "clusterIP None is headless", object: object({ spec: { clusterIP: "None" } }), is: { isHeadless: true } },
  {
    name: "None only in clusterIPs is headless, too",
    object: object({ spec: { clusterIPs: ["None"] } }),
    is: { isHeadless: true },
  },
  {
    name: "the proxy name comes from its label",
    object: object({ metadata: { labels: { "service.kubernetes.io/service-proxy-name": "other" } } }),
    is: { proxyName: "other" },
  },
  {
    name: "only selected labels and annotations are kept",
    object: object({ metadata: { labels: { app: "a", tier: "b" }, annotations: { note: "n", other: "o" } } }),
    is: { labels: { app: "a" }, annotations: { note: "n" } },
  },
  {
    name: "ingress IPs are virtual IPs except in mode Proxy, and host names are ignored",
    object: object({
      status: {
        loadBalancer: {
          ingress: [
            { ip: "192.0.2.1" },
            { ip: "192.0.2.2", ipMode: "VIP" },
            { ip: "192.0.2.3", ipMode: "Proxy" },
            { hostname: "lb.example.com" },
          ],
        },
      },
    }),
    is: {
      loadBalancerIPs: { v4: ["192.0.2.1", "192.0.2.2"], v6: [] },
      proxyModeLoadBalancerIPs: { v4: ["192.0.2.3"], v6: [] },
    },
  },
  {
    name: "an empty ingress list means no load balancer",
    object: object({ status: { loadBalancer: { ingress: [] } } }),
    is: { loadBalancerIPs: undefined },
  },
  {
    name: "source ranges are trimmed and canonical",
    object: object({ spec: { loadBalancerSourceRanges: [" 10.1.2.3/8", "fd00::1/64 "] } }),
    is: { ipFilters: [{ sourceRanges: ["10.0.0.0/8", "fd00::/64"] }] },
  },
  {
    name: "the protocol defaults to TCP and the target port to the port",
    object: object({ spec: { ports: [{ port: 80 }, { name: "b", port: 81, targetPort: 0 }] } }),
    is: {
      ports: [
        { name: "", protocol: "TCP", port: 80, nodePort: 0, targetPort: 80 },
        { name: "b", protocol: "TCP", port: 81, nodePort: 0, targetPort: 81 },
      ],
    },
  },
  {
    name: "a target port is a number or a name",
    object: object({
      spec: {
        ports: [
          { name: "a", port: 80, targetPort: 8080, nodePort: 30080, protocol: "UDP" },
          { name: "b", port: 81, targetPort: "http", protocol: "SCTP" },
        ],
      },
    }),
    is: {
      ports: [
        { name: "a", protocol: "UDP", port: 80, nodePort: 30080, targetPort: 8080 },
        { name: "b", protocol: "SCTP", port: 81, nodePort: 0, targetPort: "http" },
      ],
    },
  },
  {
    name: "affinity lasts three hours by default",
    object: object({ spec: { sessionAffinity: "ClientIP" } }),
    is: { clientIPAffinitySeconds: 10_800 },
  },
  {
    name: "the affinity timeout comes from the Service",
    object: object({
      spec: { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 5 } } },
    }),
    is: { clientIPAffinitySeconds: 5 },
  },
  {
    name: "policies and the health-check node port are kept",
    object: object({
      spec: { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local", healthCheckNodePort: 32_000 },
    }),
    is: { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local", healthCheckNodePort: 32_000 },
  },
  {
    name: "creation and UID are kept",
    object: object({ metadata: { creationTimestamp: "2024-05-01T12:00:00Z", uid: "0b1c" } }),
    is: { createdSeconds: 1_714_564_800, uid: "0b1c" },
  },
  {
    name: "a manifest without creation and UID is accepted",
    object: object({ metadata: { creationTimestamp: null, uid: "" } }),
    is: {},
  },
  {
    name: "an ExternalName Service is accepted",
    object: object({ spec: { type: "ExternalName", externalName: "example.com" } }),
    is: { type: "ExternalName" },
  },
];

for (const { name, object, is } of table) {
  test(`Service: ${name}`, () => {
    assert.deepEqual(decodeService(object, options), {
      kind: "ok",
      value: { ...plain, ...is },
      notes: [],
      skipped: [],
    });
  });
}

const badTable: readonly { name: string; object: unknown; at: string; says: RegExp }[] = [
  { name: "a number in place of an object", object: 7, at: "", says: /expected object, received number/ },
  { name: "null", object: null, at: "", says: /expected object/ },
  { name: "a missing name", object: { metadata: {} }, at: "metadata.name", says: /expected string/ },
  {
    name: "a bar in a namespace",
    object: object({ metadata: { namespace: "a|b" } }),
    at: "metadata.namespace",
    says: /name/,
  },
  {
    name: "ports that are not a list",
    object: object({ spec: { ports: { port: 80 } } }),
    at: "spec.ports",
    says: /expected array/,
  },
];

for (const { name, object, at, says } of badTable) {
  test(`Service: ${name} is invalid, and the problem names the field`, () => {
    const decoded = decodeService(object, options);
    assert.equal(decoded.kind, "bad");
    assert.equal(showPath(decoded.path), at);
    assert.match(decoded.problem, says);
  });
}

test.each(["", "a/b", "a|b", "a b", "a\0", "a".repeat(254)])("Service: the name %j is invalid", (name) => {
  const decoded = decodeService(object({ metadata: { name } }), options);
  assert.equal(decoded.kind, "bad");
  assert.match(`${showPath(decoded.path)}: ${decoded.problem}`, /^metadata\.name: ".* is not a valid name: /s);
});

const partTable: readonly {
  name: string;
  object: unknown;
  at: string;
  says: RegExp;
  is: Partial<Service>;
}[] = [
  {
    name: "an unknown type",
    object: object({ spec: { type: "Ingress" } }),
    at: "spec.type",
    says: /"Ingress" is not one of/,
    is: {},
  },
  {
    name: "an invalid cluster IP",
    object: object({ spec: { clusterIPs: ["10.0.0.1", "10.0.0"] } }),
    at: "spec.clusterIPs[1]",
    says: /"10.0.0" is not an IP address/,
    is: { clusterIPs: { v4: ["10.0.0.1"], v6: [] } },
  },
  {
    name: "an invalid external IP",
    object: object({ spec: { externalIPs: ["fe80::1%eth0", "192.0.2.1"] } }),
    at: "spec.externalIPs[0]",
    says: /not an IP address/,
    is: { externalIPs: { v4: ["192.0.2.1"], v6: [] } },
  },
  {
    name: "an invalid ingress IP",
    object: object({ status: { loadBalancer: { ingress: [{ ip: "x" }, { ip: "192.0.2.1" }] } } }),
    at: "status.loadBalancer.ingress[0].ip",
    says: /"x" is not an IP address/,
    is: { loadBalancerIPs: { v4: ["192.0.2.1"], v6: [] } },
  },
  {
    name: "an invalid source range",
    object: object({ spec: { loadBalancerSourceRanges: ["10.0.0.0/33", "10.0.0.0/8"] } }),
    at: "spec.loadBalancerSourceRanges[0]",
    says: /"10.0.0.0\/33" is not a CIDR/,
    is: { ipFilters: [{ sourceRanges: ["10.0.0.0/8"] }] },
  },
  {
    name: "port 0",
    object: object({ spec: { ports: [{ port: 0 }] } }),
    at: "spec.ports[0].port",
    says: /0 is not an integer from 1 to 65535/,
    is: {},
  },
  {
    name: "a node port out of range",
    object: object({ spec: { ports: [{ port: 1, nodePort: 65_536 }] } }),
    at: "spec.ports[0].nodePort",
    says: /65536/,
    is: { ports: [{ name: "", protocol: "TCP", port: 1, nodePort: 0, targetPort: 1 }] },
  },
  {
    name: "a target port in quotes",
    object: object({ spec: { ports: [{ port: 1, targetPort: "8080" }] } }),
    at: "spec.ports[0].targetPort",
    says: /"8080" is neither/,
    is: { ports: [{ name: "", protocol: "TCP", port: 1, nodePort: 0, targetPort: 1 }] },
  },
  {
    name: "an unknown protocol",
    object: object({
      spec: {
        ports: [
          { port: 1, protocol: "QUIC" },
          { name: "b", port: 2 },
        ],
      },
    }),
    at: "spec.ports[0].protocol",
    says: /TCP, UDP, SCTP/,
    is: { ports: [{ name: "b", protocol: "TCP", port: 2, nodePort: 0, targetPort: 2 }] },
  },
  {
    name: "an affinity timeout of 0",
    object: object({
      spec: { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } },
    }),
    at: "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
    says: /from 1 to 86400/,
    is: { clientIPAffinitySeconds: 10_800 },
  },
  {
    name: "a time of creation that is none",
    object: object({ metadata: { creationTimestamp: "yesterday", uid: "0b1c" } }),
    at: "metadata.creationTimestamp",
    says: /"yesterday" is not a time/,
    is: { uid: "0b1c" },
  },
];

for (const { name, object, at, says, is } of partTable) {
  test(`Service: ${name} is skipped alone, and the problem names the field`, () => {
    const decoded = decodeService(object, options);
    assert.equal(decoded.kind, "ok");
    assert.deepEqual(decoded.value, { ...plain, ...is });
    const [first, ...others] = decoded.skipped;
    assert.deepEqual(others, []);
    assert.equal(showPath(first?.path ?? []), at);
    assert.match(first?.problem ?? "", says);
  });
}

const ingress = [{ ip: "192.0.2.1" }, { ip: "2001:db8::1" }];
const rangeTable = [
  { ranges: ["10.0.0.0/33"], left: { v4: [], v6: [] } },
  { ranges: ["10.0.0.0/33", "10.0.0.0/8"], left: { v4: ["192.0.2.1"], v6: [] } },
  { ranges: ["fd00::/129", "fd00::/8"], left: { v4: [], v6: ["2001:db8::1"] } },
  { ranges: ["10.0.0.0/8"], left: { v4: ["192.0.2.1"], v6: ["2001:db8::1"] } },
];
for (const { ranges, left } of rangeTable) {
  test(`Service: with source ranges ${ranges}, no load-balancer IP is open because a range was skipped`, () => {
    const spec = { loadBalancerSourceRanges: ranges };
    const decoded = decodeService(object({ spec, status: { loadBalancer: { ingress } } }), options);
    assert.equal(decoded.kind, "ok");
    assert.deepEqual(decoded.value.loadBalancerIPs, left);
  });
}

test("Service: a label named __proto__ is an ordinary label", () => {
  const decoded = decodeService(
    JSON.parse('{"metadata":{"name":"web","labels":{"__proto__":"x"}}}'),
    makeDecodeOptions({ serviceLabels: ["*"] }),
  );
  assert.equal(decoded.kind, "ok");
  assert.equal(Object.getPrototypeOf(decoded.value.labels), Object.prototype);
});

test.each([
  { labels: { "service.kubernetes.io/service-proxy-name": "" }, isServed: false },
  { labels: { "service.kubernetes.io/headless": "" }, isServed: false },
  { labels: { "service.kubernetes.io/headless": "", "service.kubernetes.io/service-proxy-name": "x" }, isServed: true },
])("a Service with the labels $labels is served: $isServed", ({ labels, isServed }) => {
  const decoded = decodeService(object({ metadata: { labels } }), makeDecodeOptions());
  assert.equal(decoded.kind, isServed ? "ok" : "skip");
});
