import { endpoint, port, service } from "@kpng/model/testing/views.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { frontend, routesOf, webPlan } from "../testing/plans.ts";
import { FirewallMarks } from "./firewall-marks.ts";
import { markElement } from "./kernel-objects.ts";
import { NodePlaces } from "./node-places.ts";
import { type RenderContext, renderService } from "./render-service.ts";

/** Returns the objects as lines. */
function render(plan: ServicePlan, scheduler = "rr", parts: Partial<RenderContext> = {}) {
  const objects = renderService(plan, {
    node: nodePlan(),
    nodePortAddresses: ["192.0.2.1"],
    nodePlaces: new NodePlaces([]),
    localAddresses: new Set(["192.0.2.1", "198.51.100.99"]),
    scheduler,
    marks: new FirewallMarks(0x6b),
    view: undefined,
    ...parts,
  });
  return [...objects].flatMap(([kind, entries]) =>
    [...entries].map(([key, value]) => `${kind} ${key} ${value}`.trimEnd()),
  );
}

test("a cluster IP is a virtual server, an address, and an element that masquerades all but pods", () => {
  expect(render(webPlan([frontend()]))).toEqual([
    "address 10.96.0.1",
    "ADDRESSES 10.96.0.1",
    "server -t 10.96.0.1:80 -s rr",
    "real -t 10.96.0.1:80 -r 10.1.1.7:8080 -w 1",
    "real -t 10.96.0.1:80 -r 10.1.2.8:8080 -w 1",
    "SERVERS 10.96.0.1,tcp:80",
    "MASQ-OTHERS 10.96.0.1,tcp:80",
  ]);
});

test("a node port is a virtual server at each of the node's addresses, without an address of our interface", () => {
  const nodePort = frontend({ kind: "nodePort", address: undefined, port: 30_080, routes: routesOf.external });
  expect(render(webPlan([nodePort]))).toEqual([
    "server -t 192.0.2.1:30080 -s rr",
    "real -t 192.0.2.1:30080 -r 10.1.1.7:8080 -w 1",
    "real -t 192.0.2.1:30080 -r 10.1.2.8:8080 -w 1",
    "SERVERS 192.0.2.1,tcp:30080",
    "MASQ 192.0.2.1,tcp:30080",
  ]);
});

test("an address that the node has just lost serves node ports, and is not put on our interface", () => {
  const nodePort = frontend({ kind: "nodePort", address: undefined, port: 30_080, routes: routesOf.external });
  const lines = render(webPlan([nodePort]), "rr", { nodePortAddresses: ["192.0.2.9"] });
  expect(lines).toContain("server -t 192.0.2.9:30080 -s rr");
  expect(lines.filter((line) => /^address|^ADDRESSES/.test(line))).toEqual([]);
});

test("a load-balancer IP that another interface has gets no address on ours", () => {
  const bound = frontend({ kind: "loadBalancerIP", address: "198.51.100.99", routes: routesOf.external });
  expect(render(webPlan([bound])).filter((line) => /^address|^ADDRESSES/.test(line))).toEqual([]);
});

test("with policy Local, marks lead pods and the node to a virtual server with all endpoints", () => {
  const balancer = frontend({ kind: "loadBalancerIP", address: "198.51.100.10", routes: routesOf.local });
  const lines = render(webPlan([balancer]));
  const markOf = (role: string) =>
    Number(lines.map((line) => new RegExp(`^${role} .* skbmark (0x[0-9a-f]+)$`).exec(line)?.[1]).find((mark) => mark));
  const [pod, node] = [markOf("POD-MARKS"), markOf("NODE-MARKS")];
  expect(node - pod).toBe(0x0080_0000);
  expect(lines).toContain("real -t 198.51.100.10:80 -r 10.1.1.7:8080 -w 1");
  expect(lines).not.toContain("real -t 198.51.100.10:80 -r 10.1.2.8:8080 -w 1");
  expect(lines).toContain(`real -f ${pod} -r 10.1.2.8:8080 -w 1`);
  expect(lines).toContain(`real -f ${node} -r 10.1.2.8:8080 -w 1`);
  expect(lines.filter((line) => line.startsWith("MARKS "))).toEqual(
    [pod, node].map((mark) => `MARKS ${markElement(mark)}`),
  );
  expect(lines.filter((line) => line.startsWith("MASQ"))).toEqual([]);
});

test("with policy Local and no endpoint on the node, only packets from outside are dropped, and none needs a mark", () => {
  const balancer = frontend({ address: "198.51.100.10", routes: routesOf.localWithoutEndpoint });
  const lines = render(webPlan([balancer]));
  expect(lines).toContain("DROP-OUTSIDE 198.51.100.10,tcp:80");
  expect(lines).toContain("SERVERS 198.51.100.10,tcp:80");
  expect(lines.filter((line) => line.startsWith("server -"))).toEqual(["server -t 198.51.100.10:80 -s rr"]);
  expect(lines.filter((line) => line.startsWith("MASQ"))).toEqual(["MASQ-OTHERS 198.51.100.10,tcp:80"]);
});

test("without endpoints, packets are refused, and the address stays", () => {
  const lines = render(webPlan([frontend({ routes: routesOf.refused })]));
  expect(lines).toEqual(["address 10.96.0.1", "ADDRESSES 10.96.0.1", "REFUSED 10.96.0.1,tcp:80"]);
});

test("endpoints that may reach themselves and the port of health checks are elements", () => {
  const lines = render({ ...webPlan([]), hairpin: ["10.1.1.7"], healthCheck: { port: 31_000, localEndpoints: 1 } });
  expect(lines).toEqual(["HAIRPIN 10.1.1.7,10.1.1.7", "HEALTH 31000"]);
});

test("affinity is persistence, mh hashes the source port, and sh passes by endpoints that drain", () => {
  expect(render(webPlan([frontend()], { affinitySeconds: 600 }))).toContain("server -t 10.96.0.1:80 -s rr -p 600");
  expect(render(webPlan([frontend()]), "mh")).toContain("server -t 10.96.0.1:80 -s mh -b mh-port");
  expect(render(webPlan([frontend()]), "sh")).toContain("server -t 10.96.0.1:80 -s sh -b sh-fallback");
});

test("source ranges are elements in the form in which ipset prints them", () => {
  const sources = { ranges: ["10.0.0.0/8", "192.0.2.7/32"], ownAddresses: ["10.96.0.1"] };
  const lines = render(webPlan([frontend({ sources })]));
  expect(lines.filter((line) => /^RANGED|^SOURCES/.test(line))).toEqual([
    "RANGED 10.96.0.1,tcp:80",
    "SOURCES 10.96.0.1,tcp:80,10.0.0.0/8",
    "SOURCES 10.96.0.1,tcp:80,192.0.2.7",
    "SOURCES 10.96.0.1,tcp:80,10.96.0.1",
  ]);
});

test("a UDP endpoint that serves but is not chosen only finishes its flows; a TCP one is not desired", () => {
  const udp = service("ns/web", {
    ports: [port(80, { protocol: "UDP", targetPort: 8080 }), port(80, { targetPort: 8080 })],
    endpoints: ["10.1.1.7", "10.1.2.9"].map((address) => endpoint(address, { ports: [{ name: "", port: 8080 }] })),
  });
  const ofUdp = webPlan([frontend({ protocol: "UDP" })], { protocol: "UDP" });
  const reals = (plan: ServicePlan) => render(plan, "rr", { view: udp }).filter((line) => line.startsWith("real"));
  expect(reals(ofUdp).toSorted()).toEqual([
    "real -u 10.96.0.1:80 -r 10.1.1.7:8080 -w 1",
    "real -u 10.96.0.1:80 -r 10.1.2.8:8080 -w 1",
    "real -u 10.96.0.1:80 -r 10.1.2.9:8080 -w 0",
  ]);
  expect(reals(webPlan([frontend()]))).toHaveLength(2);
});
