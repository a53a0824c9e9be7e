import { endpoint, port, service } from "@kpng/model/testing/views.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { frontend, routesOf, webPlan } from "../testing/plans.ts";
import { FirewallMarks } from "./firewall-marks.ts";
import { NodePlaces } from "./node-places.ts";
import { type RenderContext, renderService } from "./render-service.ts";

// What packets meet is tested with packets (test/kernel/kpng-ipvs.test.ts, with the scenarios of all backends).

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

test("an address that the node has just lost serves node ports, and is not put on our interface", () => {
  const nodePort = frontend({ kind: "nodePort", address: undefined, port: 30_080, routes: routesOf.external });
  const lines = render(webPlan([nodePort]), "rr", { nodePortAddresses: ["192.0.2.9"] });
  expect(lines).toContain("server -t 192.0.2.9:30080 -s rr");
  expect(lines.filter((line) => /^address|^ADDRESSES/.test(line))).toEqual([]);
});

test("affinity is persistence, mh hashes the source port, and sh passes by endpoints that drain", () => {
  expect(render(webPlan([frontend()], { affinitySeconds: 600 }))).toContain("server -t 10.96.0.1:80 -s rr -p 600");
  expect(render(webPlan([frontend()]), "mh")).toContain("server -t 10.96.0.1:80 -s mh -b mh-port");
  expect(render(webPlan([frontend()]), "sh")).toContain("server -t 10.96.0.1:80 -s sh -b sh-fallback");
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
