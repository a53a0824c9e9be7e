import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import {
  addresses,
  dead,
  draining,
  endpoint,
  httpPort,
  ready,
  service,
  servicePort,
  slice,
  starting,
} from "@kpng/source/testing/build.ts";
import { describe, expect, test } from "vitest";
import { makeServiceView } from "./service-view.ts";

function view(fields: Partial<Service>, slices: readonly EndpointSlice[]): ServiceView {
  return makeServiceView(service(fields), slices, { name: "n1", zone: "z1" });
}

/** One line per endpoint: addresses, ports, node, sets, scopes. */
function describeEndpoints({ endpoints }: ServiceView): string[] {
  return endpoints
    .map(({ addresses: { v4, v6 }, ports, isOnNode, use, scopes }) =>
      [
        [...v4, ...v6].join("+"),
        ports.map((port) => `${port.name}=${port.port}`).join(","),
        isOnNode ? "here" : "elsewhere",
        `${use.cluster ? "C" : "-"}${use.local ? "L" : "-"}`,
        `${scopes.internal ? "int" : "-"}/${scopes.external ? "ext" : "-"}`,
      ].join(" "),
    )
    .sort();
}

const loadBalancer = { loadBalancerIPs: addresses("198.51.100.1") };
const admin = { name: "admin", port: 9000, protocol: "TCP" } as const;
const dns = { name: "dns", port: 53, protocol: "UDP" } as const;
const dnsPort = servicePort({ name: "dns", protocol: "UDP", port: 53 });
const away = endpoint("10.1.0.2", { nodeName: "n2" });
const drains = (fields: Partial<Endpoint> = {}) => endpoint("10.1.0.1", { conditions: draining, ...fields });

// test/conformance compares the endpoint sets of all scenarios with kube-proxy.
test.each<{ rule: string; of?: Partial<Service>; endpoints?: readonly Endpoint[]; lines: readonly string[] }>([
  {
    rule: "policy Cluster uses every endpoint for all traffic",
    of: loadBalancer,
    lines: ["10.1.0.1 http=8080 here C- int/ext", "10.1.0.2 http=8080 elsewhere C- int/ext"],
  },
  {
    rule: "external Local uses endpoints on other nodes only for internal traffic",
    of: { ...loadBalancer, externalTrafficPolicy: "Local" },
    lines: ["10.1.0.1 http=8080 here CL int/ext", "10.1.0.2 http=8080 elsewhere C- int/-"],
  },
  {
    rule: "internal Local with an external address uses endpoints on other nodes only for external traffic",
    of: { ...loadBalancer, internalTrafficPolicy: "Local" },
    lines: ["10.1.0.1 http=8080 here CL int/ext", "10.1.0.2 http=8080 elsewhere C- -/ext"],
  },
  {
    rule: "internal and external Local use endpoints on other nodes only for local traffic to the external address",
    of: { ...loadBalancer, internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" },
    lines: ["10.1.0.1 http=8080 here CL int/ext", "10.1.0.2 http=8080 elsewhere C- -/-"],
  },
  {
    rule: "internal Local leaves out endpoints on other nodes if the load balancer keeps its IP",
    of: { proxyModeLoadBalancerIPs: addresses("198.51.100.1"), internalTrafficPolicy: "Local" },
    lines: ["10.1.0.1 http=8080 here -L int/-"],
  },
  {
    rule: "external Local uses the last pod on the node while it drains",
    of: { ...loadBalancer, externalTrafficPolicy: "Local" },
    endpoints: [drains(), away],
    lines: ["10.1.0.1 http=8080 here -L -/ext", "10.1.0.2 http=8080 elsewhere C- int/-"],
  },
  {
    rule: "a draining pod is still used for the port that no ready pod has",
    of: { ports: [servicePort(), servicePort({ name: "admin", port: 90 })] },
    endpoints: [drains({ ports: [httpPort, admin] }), endpoint("10.1.0.2")],
    lines: ["10.1.0.1 admin=9000 here C- int/ext", "10.1.0.2 http=8080 here C- int/ext"],
  },
  {
    rule: "an endpoint may be used for one family only",
    endpoints: [endpoint(["10.1.0.1", "fd00::1"], { conditions: draining }), endpoint("10.1.0.2")],
    lines: ["10.1.0.2 http=8080 here C- int/ext", "fd00::1 http=8080 here C- int/ext"],
  },
  {
    rule: "an endpoint in neither set is in the view over UDP while it serves existing flows",
    of: { ports: [dnsPort] },
    endpoints: [drains({ ports: [dns] }), endpoint("10.1.0.2", { ports: [dns] })],
    lines: ["10.1.0.1 dns=53 here -- -/-", "10.1.0.2 dns=53 here C- int/ext"],
  },
  {
    rule: "an endpoint in neither set is not in the view once it no longer serves",
    of: { ports: [dnsPort] },
    endpoints: [drains({ ports: [dns], conditions: dead }), endpoint("10.1.0.2", { ports: [dns] })],
    lines: ["10.1.0.2 dns=53 here C- int/ext"],
  },
  {
    rule: "an endpoint in neither set is not in the view over TCP, whose flows are never deleted",
    endpoints: [drains(), endpoint("10.1.0.2")],
    lines: ["10.1.0.2 http=8080 here C- int/ext"],
  },
  {
    rule: "the view of a headless Service contains all endpoints, even without ports, whatever its policy",
    of: { isHeadless: true, clusterIPs: addresses(), ports: [], internalTrafficPolicy: "Local" },
    endpoints: [endpoint("10.1.0.1", { ports: [] }), { ...away, ports: [] }],
    lines: ["10.1.0.1  here CL int/ext", "10.1.0.2  elsewhere C- -/ext"],
  },
])("$rule", ({ of = {}, endpoints = [endpoint("10.1.0.1"), away], lines }) => {
  expect(describeEndpoints(view(of, [slice(endpoints)]))).toEqual(lines);
});

test.each<{ rule: string; of?: Partial<Service>; slices: readonly EndpointSlice[]; flags: readonly string[] }>([
  {
    rule: "is true if endpoints run only on other nodes",
    of: { internalTrafficPolicy: "Local" },
    slices: [slice([away])],
    flags: ["v4"],
  },
  {
    rule: "is decided per port and family",
    of: { ports: [servicePort(), dnsPort] },
    slices: [slice([endpoint("10.1.0.1", { ports: [dns] })]), slice([endpoint("fd00::1")], { name: "web-6" })],
    flags: ["v6", "v4"],
  },
  {
    rule: "ignores starting endpoints",
    slices: [slice([endpoint("10.1.0.1", { conditions: starting })])],
    flags: [""],
  },
  {
    rule: "ignores endpoints with the same port name and another protocol",
    of: { ports: [servicePort({ name: "dns" })] },
    slices: [slice([endpoint("10.1.0.1", { ports: [dns] })])],
    flags: [""],
  },
  {
    rule: "counts endpoints without a protocol, as in a state file, for every protocol",
    of: { ports: [dnsPort] },
    slices: [slice([endpoint("10.1.0.1", { ports: [{ name: "dns", port: 53 }] })])],
    flags: ["v4"],
  },
  {
    rule: "counts endpoints without ports only for a port without a name",
    of: { ports: [servicePort({ name: "" }), dnsPort] },
    slices: [slice([endpoint("10.1.0.1", { ports: [] })])],
    flags: ["v4", ""],
  },
])("portHasEndpoints, which tells drop from reject, $rule", ({ of = {}, slices, flags }) => {
  const { portHasEndpoints = [] } = view(of, slices);
  expect(portHasEndpoints.map(({ v4, v6 }) => `${v4 ? "v4" : ""}${v6 ? "v6" : ""}`)).toEqual(flags);
});

describe("the key of an endpoint", () => {
  const keys = (slices: readonly EndpointSlice[]) => view({}, slices).endpoints.map((item) => item.key);
  const pod = (address: string, fields: Partial<Endpoint> = {}) => endpoint(address, { podName: "web-1", ...fields });

  test("of a pod differs between families, and does not depend on other endpoints", () => {
    const [first, second] = [slice([pod("10.1.0.1")]), slice([pod("fd00::1")], { name: "web-6" })];
    const made = keys([first, second]);
    expect(new Set(made).size).toBe(2);
    for (const key of made) expect(key).toMatch(/^web-1\.[0-9a-f]{1,16}$/);
    expect(made).toEqual(expect.arrayContaining(keys([first])));
  });

  test("is KPNG's for a pod from a state file", () => {
    expect(keys([slice([pod("10.1.0.1")], { hasPodKeys: true })])).toEqual(["web-1"]);
  });

  const udp = [{ ...httpPort, protocol: "UDP" }] as const;
  test.each<{ between: string; slices: readonly (readonly Endpoint[])[] }>([
    {
      between: "two slices with different ports of one pod",
      slices: [[pod("10.1.0.1")], [pod("10.1.0.1", { ports: [{ ...httpPort, port: 9090 }] })]],
    },
    {
      between: "addresses in use, for an endpoint without a pod",
      slices: [[endpoint(["10.1.0.1", "10.1.0.2"]), endpoint(["10.1.0.2", "10.1.0.1"])]],
    },
    {
      between: "protocols, for an endpoint without a pod",
      slices: [[endpoint("10.1.0.1")], [endpoint("10.1.0.1", { ports: udp })]],
    },
  ])("differs between $between", ({ slices }) => {
    expect(new Set(keys(slices.map((endpoints, at) => slice(endpoints, { name: `web-${at}` })))).size).toBe(2);
  });
});

test.each<{ rule: string; pair: readonly Endpoint["conditions"][]; terminating: readonly boolean[] }>([
  { rule: "occurs once in the view", pair: [ready, ready], terminating: [false] },
  { rule: "does not terminate if it terminates in the first", pair: [draining, ready], terminating: [false] },
  { rule: "does not terminate if it terminates in the second", pair: [ready, draining], terminating: [false] },
  {
    rule: "loses its address to the next pod if it terminates, even if it is ready",
    pair: [{ ready: true, serving: true, terminating: true }, starting],
    terminating: [],
  },
  {
    rule: "loses its address to the next pod if it terminates, even if it serves",
    pair: [draining, starting],
    terminating: [],
  },
])("an endpoint that is in two slices $rule", ({ pair, terminating }) => {
  const slices = pair.map((conditions, at) => slice([endpoint("10.1.0.1", { conditions })], { name: `web-${at}` }));
  const { endpoints, portHasEndpoints } = view({}, slices);
  expect(endpoints.map((item) => item.conditions.terminating)).toEqual(terminating);
  expect(portHasEndpoints?.[0]?.v4).toBe(terminating.length > 0);
});
