import type { ServiceKey } from "@kpng/model/service.ts";
import { expect, test } from "vitest";
import { frontend, webPlan } from "../testing/plans.ts";
import { NodePlaces } from "./node-places.ts";

const nodePort = webPlan([frontend({ kind: "nodePort", address: undefined, port: 30_080 })]);

/** Returns the plan of a Service with an external IP. */
function planOf(key: ServiceKey, parts: Parameters<typeof frontend>[0] = {}) {
  return { ...webPlan([frontend({ kind: "externalIP", address: "192.0.2.1", port: 30_080, ...parts })]), key };
}

test.each([
  ["ns/a", "ns/b"],
  ["ns/b", "ns/a"],
] as const)("a place stays taken when %s and %s put an exchanged frontend in this order", (one, other) => {
  const places = new NodePlaces(["192.0.2.1"]);
  places.put("ns/web", nodePort);
  expect(places.put("ns/a", planOf("ns/a"))).toEqual(["ns/web"]);
  for (const key of [one, other]) places.put(key, key === "ns/b" ? planOf(key) : undefined);
  expect(places.isTaken("192.0.2.1,tcp:30080")).toBe(true);
  places.put("ns/b", undefined);
  expect(places.isTaken("192.0.2.1,tcp:30080")).toBe(false);
});

test("the node port of a Service does not answer where it has an external IP", () => {
  const places = new NodePlaces(["192.0.2.1"]);
  const both = [nodePort, planOf("ns/web")].flatMap(({ ports }) => ports.flatMap(({ frontends }) => frontends));
  places.put("ns/web", webPlan(both));
  expect(places.isTaken("192.0.2.1,tcp:30080")).toBe(true);
});

test.each([
  ["another address", { address: "203.0.113.1" }],
  ["another port", { port: 30_081 }],
  ["another protocol", { protocol: "UDP" }],
] as const)("a frontend with %s concerns no node port", (_, parts) => {
  const places = new NodePlaces(["192.0.2.1"]);
  places.put("ns/web", nodePort);
  expect(places.put("ns/a", planOf("ns/a", parts))).toEqual([]);
  expect(places.isTaken("192.0.2.1,tcp:30080")).toBe(false);
});
