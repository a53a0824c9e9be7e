import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import type { Service } from "@kpng/model/service.ts";
import { describe, expect, test } from "vitest";
import { addresses, draining, endpoint, httpPort, service, servicePort, slice, starting } from "../testing/build.ts";
import { makeServiceView } from "./service-view.ts";

const here = { name: "n1", zone: "z1" };

function view(fields: Partial<Service>, slices: readonly EndpointSlice[], nodeName = "n1"): ServiceView {
  return makeServiceView(service(fields), slices, { ...here, name: nodeName });
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

const loadBalancer: Partial<Service> = { type: "LoadBalancer", loadBalancerIPs: addresses("198.51.100.1") };
const two = [slice([endpoint("10.1.0.1"), endpoint("10.1.0.2", { nodeName: "n2" })])];

const local = "Local" as const;

describe("a traffic policy", () => {
  test.each<{ policy: string; fields: Partial<Service>; here: string; there: string | undefined }>([
    {
      policy: "Cluster uses every endpoint for all traffic",
      fields: loadBalancer,
      here: "C- int/ext",
      there: "C- int/ext",
    },
    {
      policy: "external Local uses endpoints on other nodes only for internal traffic",
      fields: { ...loadBalancer, externalTrafficPolicy: local },
      here: "CL int/ext",
      there: "C- int/-",
    },
    {
      policy: "internal Local without an external address leaves out endpoints on other nodes",
      fields: { internalTrafficPolicy: local },
      here: "-L int/-",
      there: undefined,
    },
    {
      policy: "internal Local with an external address uses endpoints on other nodes only for external traffic",
      fields: { ...loadBalancer, internalTrafficPolicy: local },
      here: "CL int/ext",
      there: "C- -/ext",
    },
    {
      policy: "internal and external Local use endpoints on other nodes only for local traffic to the external address",
      fields: { ...loadBalancer, internalTrafficPolicy: local, externalTrafficPolicy: local },
      here: "CL int/ext",
      there: "C- -/-",
    },
  ])("$policy", ({ fields, here: onNode, there }) => {
    const elsewhere = there === undefined ? [] : [`10.1.0.2 http=8080 elsewhere ${there}`];
    expect(describeEndpoints(view(fields, two))).toEqual([`10.1.0.1 http=8080 here ${onNode}`, ...elsewhere]);
  });

  test("a load-balancer IP that the load balancer keeps does not make a Service external", () => {
    const fields: Partial<Service> = {
      type: "LoadBalancer",
      proxyModeLoadBalancerIPs: addresses("198.51.100.1"),
      internalTrafficPolicy: "Local",
    };
    expect(describeEndpoints(view(fields, two))).toEqual(["10.1.0.1 http=8080 here -L int/-"]);
  });

  test("external Local uses the last pod on the node while it drains", () => {
    const slices = [slice([endpoint("10.1.0.1", { conditions: draining }), endpoint("10.1.0.2", { nodeName: "n2" })])];
    expect(describeEndpoints(view({ ...loadBalancer, externalTrafficPolicy: "Local" }, slices))).toEqual([
      "10.1.0.1 http=8080 here -L -/ext",
      "10.1.0.2 http=8080 elsewhere C- int/-",
    ]);
  });
});

describe("portHasEndpoints tells drop from reject", () => {
  const ports = [servicePort(), servicePort({ name: "dns", protocol: "UDP", port: 53 })];

  test("it is true if endpoints run only on other nodes", () => {
    const made = view({ internalTrafficPolicy: "Local" }, two, "n3");
    expect(made.endpoints).toEqual([]);
    expect(made.portHasEndpoints).toEqual([{ v4: true, v6: false }]);
  });

  test("it is decided per port and family", () => {
    const v6 = slice([endpoint("fd00::1", { ports: [httpPort] })], { name: "web-6" });
    const v4 = slice([endpoint("10.1.0.1", { ports: [{ name: "dns", port: 53, protocol: "UDP" }] })]);
    expect(view({ ports }, [v4, v6]).portHasEndpoints).toEqual([
      { v4: false, v6: true },
      { v4: true, v6: false },
    ]);
  });

  test("starting endpoints do not count", () => {
    const made = view({}, [slice([endpoint("10.1.0.1", { conditions: starting })])]);
    expect(made.portHasEndpoints).toEqual([{ v4: false, v6: false }]);
  });

  test("endpoints with the same port name and another protocol do not count", () => {
    const made = view({ ports: [servicePort({ name: "dns", protocol: "TCP" })] }, [
      slice([endpoint("10.1.0.1", { ports: [{ name: "dns", port: 53, protocol: "UDP" }] })]),
    ]);
    expect(made.portHasEndpoints).toEqual([{ v4: false, v6: false }]);
  });

  test("endpoints without a protocol, as in a state file, count for every protocol", () => {
    const made = view({ ports }, [slice([endpoint("10.1.0.1", { ports: [{ name: "dns", port: 53 }] })])]);
    expect(made.portHasEndpoints?.[1]).toEqual({ v4: true, v6: false });
  });
});

describe("endpoints are chosen per port and family", () => {
  const admin = { name: "admin", port: 9000, protocol: "TCP" } as const;
  const ports = [servicePort(), servicePort({ name: "admin", port: 90 })];

  test("a draining pod is still used for the port that no ready pod has", () => {
    const old = endpoint("10.1.0.1", { conditions: draining, ports: [httpPort, admin] });
    const young = endpoint("10.1.0.2", { ports: [httpPort] });
    const made = view({ ports }, [slice([old]), slice([young], { name: "web-b" })]);
    expect(describeEndpoints(made)).toEqual([
      "10.1.0.1 admin=9000 here C- int/ext",
      "10.1.0.2 http=8080 here C- int/ext",
    ]);
  });

  test("an endpoint may be used for one family only", () => {
    const both = endpoint(["10.1.0.1", "fd00::1"], { conditions: draining });
    const made = view({}, [slice([both, endpoint("10.1.0.2")])]);
    expect(describeEndpoints(made)).toEqual([
      "10.1.0.2 http=8080 here C- int/ext",
      "fd00::1 http=8080 here C- int/ext",
    ]);
  });
});

describe("the key of an endpoint", () => {
  const keys = (slices: readonly EndpointSlice[]) => view({}, slices).endpoints.map((item) => item.key);

  test("differs between the two families of a pod", () => {
    const made = keys([
      slice([endpoint("10.1.0.1", { podName: "web-1" })], { name: "web-4" }),
      slice([endpoint("fd00::1", { podName: "web-1" })], { name: "web-6" }),
    ]);
    expect(new Set(made).size).toBe(2);
    for (const key of made) expect(key).toMatch(/^web-1\.[0-9a-f]{1,16}$/);
  });

  test("does not depend on other endpoints", () => {
    const first = slice([endpoint("10.1.0.1", { podName: "web-1" })], { name: "web-4" });
    const second = slice([endpoint("fd00::1", { podName: "web-1" })], { name: "web-6" });
    expect(keys([first, second])).toEqual(expect.arrayContaining(keys([first])));
  });

  test("differs between two slices with different ports of one pod", () => {
    const ports = [{ name: "http", port: 9090, protocol: "TCP" }] as const;
    const made = keys([
      slice([endpoint("10.1.0.1", { podName: "web-1" })]),
      slice([endpoint("10.1.0.1", { podName: "web-1", ports })], { name: "web-b" }),
    ]);
    expect(new Set(made).size).toBe(2);
  });

  test("is KPNG's for a pod from a state file", () => {
    expect(keys([slice([endpoint("10.1.0.1", { podName: "web-1" })], { hasPodKeys: true })])).toEqual(["web-1"]);
  });

  test("differs between addresses in use, for an endpoint without a pod", () => {
    const there = endpoint(["10.1.0.2", "10.1.0.1"]);
    expect(keys([slice([endpoint(["10.1.0.1", "10.1.0.2"]), there])])).toHaveLength(2);
  });

  test("differs between protocols, for an endpoint without a pod", () => {
    const overUdp = endpoint("10.1.0.1", { ports: [{ name: "http", port: 8080, protocol: "UDP" }] });
    expect(keys([slice([endpoint("10.1.0.1")]), slice([overUdp], { name: "web-b" })])).toHaveLength(2);
  });

  test("is derived from the content, for an endpoint without a pod", () => {
    expect(keys([slice([endpoint("10.1.0.1"), endpoint("10.1.0.2")])])).toHaveLength(2);
  });
});

describe("an endpoint that is in two slices", () => {
  test("occurs once in the view", () => {
    const made = view({}, [slice([endpoint("10.1.0.1")]), slice([endpoint("10.1.0.1")], { name: "web-b" })]);
    expect(made.endpoints).toHaveLength(1);
  });

  test.each([
    ["first", [draining, undefined]],
    ["second", [undefined, draining]],
  ])("keeps the state of the slice in which it does not terminate, if it terminates in the %s", (_, states) => {
    const slices = states.map((state, index) =>
      slice([endpoint("10.1.0.1", state === undefined ? {} : { conditions: state })], { name: `web-${index}` }),
    );
    expect(view({}, slices).endpoints.map((item) => item.conditions.terminating)).toEqual([false]);
  });

  test.each([
    ["ready", { ready: true, serving: true, terminating: true }],
    ["serving", draining],
  ])("loses its address to the next pod if it terminates, even if it is %s", (_, conditions) => {
    const slices = [
      slice([endpoint("10.1.0.1", { conditions })]),
      slice([endpoint("10.1.0.1", { conditions: starting })], { name: "web-b" }),
    ];
    const made = view({}, slices);
    expect(made.endpoints).toEqual([]);
    expect(made.portHasEndpoints).toEqual([{ v4: false, v6: false }]);
  });
});

describe("an endpoint that is in neither set", () => {
  const ports = [servicePort({ name: "dns", protocol: "UDP", port: 53 })];
  const dns = [{ name: "dns", port: 53, protocol: "UDP" }] as const;

  test("is in the view over UDP while it serves existing flows", () => {
    const old = endpoint("10.1.0.1", { ports: dns, conditions: draining });
    expect(describeEndpoints(view({ ports }, [slice([old, endpoint("10.1.0.2", { ports: dns })])]))).toEqual([
      "10.1.0.1 dns=53 here -- -/-",
      "10.1.0.2 dns=53 here C- int/ext",
    ]);
  });

  test("is not in the view once it no longer serves", () => {
    const dead = { ready: false, serving: false, terminating: true };
    const old = endpoint("10.1.0.1", { ports: dns, conditions: dead });
    expect(view({ ports }, [slice([old, endpoint("10.1.0.2", { ports: dns })])]).endpoints).toHaveLength(1);
  });

  test("is not in the view over TCP, whose flows are never deleted", () => {
    const old = endpoint("10.1.0.1", { conditions: draining });
    expect(view({}, [slice([old, endpoint("10.1.0.2")])]).endpoints).toHaveLength(1);
  });
});

test("the view of a headless Service contains all endpoints, even without ports", () => {
  const made = view({ isHeadless: true, clusterIPs: addresses(), ports: [] }, [
    slice([endpoint("10.1.0.1", { ports: [] })]),
  ]);
  expect(describeEndpoints(made)).toEqual(["10.1.0.1  here C- int/ext"]);
});
