import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { endpoint, node, service, slice } from "../testing/build.ts";
import { observeBrake } from "./observe-brake.ts";
import { Store } from "./store.ts";

const names = Array.from({ length: 20 }, (_, index) => `s${index}`);
const services = names.map((name) => service({ name }));
const origin = { source: "test", receivedAtMs: 0, isConfirming: true };

function setUp(holdMs = 600_000, confirmAfterMs = 0) {
  const store = new Store({ brake: { holdMs, confirmAfterMs } });
  const [health, metrics] = [new Health(), new Registry()];
  observeBrake(store, { log: createLog("error", () => undefined), health, metrics });
  store.replace({ services, slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });
  const held = async (): Promise<number | undefined> =>
    (await metrics.getSingleMetric("kpng_brake_held_objects")?.get())?.values[0]?.value;
  return { store, health, held };
}

test("a list that lacks nearly all Services adds and updates at once, and deletes once a later list confirms it", async () => {
  const { store, health, held } = setUp();
  const listed = [service({ name: "s0", mapIP: true }), service({ name: "new" })];
  expect(store.replace({ services: listed }, origin)).toEqual({ deletedCount: 19, currentCount: 20 });
  expect(store.snapshot.services.size).toBe(21);
  expect(store.snapshot.services.get("ns/s0")?.mapIP).toBe(true);
  expect(health.parts.get("brake/services")?.reason).toContain("would delete 19 of 20 services");
  expect(health.isReady).toBe(true);
  expect(await held()).toBe(19);
  expect(store.replace({ services: listed }, { ...origin, isConfirming: false })).toBeDefined();
  expect(store.replace({ services: listed }, origin)).toBeUndefined();
  expect([...store.snapshot.services.keys()].sort()).toEqual(["ns/new", "ns/s0"]);
  expect(health.isHealthy).toBe(true);
  expect(await held()).toBe(0);
});

test("a deletion that a watch reports applies at once, and so does an object that returns", () => {
  const { store } = setUp();
  store.replace({ services: [] }, origin);
  store.apply([
    { kind: "delete-service", key: "ns/s1" },
    { kind: "put-service", service: service({ name: "s2", mapIP: true }) },
  ]);
  expect(store.snapshot.services.size).toBe(19);
  store.replace({ services: [service({ name: "s2" })] }, origin);
  expect([...store.snapshot.services.keys()]).toEqual(["ns/s2"]);
});

test("an object that a watch returned or changed meanwhile is not deleted with those that are held", () => {
  const { store } = setUp();
  store.replace({ services: [] }, origin);
  store.apply([
    { kind: "delete-service", key: "ns/s1" },
    { kind: "put-service", service: service({ name: "s2", mapIP: true }) },
  ]);
  store.apply([{ kind: "put-service", service: service({ name: "s1" }) }]);
  expect(store.brake.release()).toBe(18);
  expect([...store.snapshot.services.keys()].sort()).toEqual(["ns/s1", "ns/s2"]);
});

test("a later list that contains the objects again refutes the first, and another loss is held again", () => {
  const { store } = setUp();
  store.replace({ services: [] }, origin);
  store.replace({ services }, origin);
  expect(store.brake.held.size).toBe(0);
  store.replace({ services: [] }, origin);
  expect(store.snapshot.services.size).toBe(20);
});

test("a confirming list that comes at once does not release", () => {
  const { store } = setUp(600_000, 30_000);
  store.replace({ services: [] }, origin);
  expect(store.replace({ services: [] }, origin)).toBeDefined();
  expect(store.snapshot.services.size).toBe(20);
});

test("an operator releases what is held, of every kind", () => {
  const { store, health } = setUp();
  store.replace({ services: [] }, origin);
  expect(store.brake.release()).toBe(20);
  expect(store.snapshot.services.size).toBe(0);
  expect(health.isHealthy).toBe(true);
});

test("after the longest time the newest list applies without another one", async () => {
  const { store } = setUp(30, 600_000);
  store.replace({ services: [] }, origin);
  expect(store.snapshot.services.size).toBe(20);
  await expect.poll(() => store.snapshot.services.size).toBe(0);
  expect(store.brake.held.size).toBe(0);
});

test("without a brake, a list applies at once", () => {
  const store = new Store();
  store.replace({ services });
  expect(store.replace({ services: [] })).toBeUndefined();
  expect(store.snapshot.services.size).toBe(0);
});
