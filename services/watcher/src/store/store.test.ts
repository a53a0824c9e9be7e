import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { describe, expect, test } from "vitest";
import { slicesOf } from "./snapshot.ts";
import { Store } from "./store.ts";

const empty = { services: [], slices: [], nodes: [] };

test("a store is synced after every kind has been listed, also if all are empty, and not by changes", () => {
  const store = new Store();
  store.apply([{ kind: "put-service", service: service() }]);
  for (const objects of [{ services: [] }, { slices: [] }]) {
    store.replace(objects);
    expect(store.snapshot.isSynced).toBe(false);
  }
  expect(store.missingKinds).toEqual(["nodes"]);
  store.replace({ nodes: [] });
  expect(store.snapshot).toMatchObject({ revision: 3, isSynced: true });
});

describe("the store makes", () => {
  function synced(): Store {
    const store = new Store();
    store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });
    return store;
  }

  test("one revision for a list and one for a set of changes", () => {
    const store = synced();
    expect(store.snapshot.revision).toBe(1);
    store.apply([
      { kind: "put-node", node: node("n2") },
      { kind: "put-service", service: service({ name: "other" }) },
      { kind: "delete-slice", key: "ns/web/web-a" },
    ]);
    expect(store.snapshot.revision).toBe(2);
    expect(slicesOf(store.snapshot, "ns/web")).toEqual([]);
  });

  test("no revision for equal values, or for deletes of missing objects", () => {
    const store = synced();
    const before = store.snapshot;
    store.apply([
      { kind: "put-service", service: service() },
      { kind: "put-slice", slice: slice([endpoint("10.1.0.1")], { triggeredAtMs: 5 }) },
      { kind: "put-node", node: node("n1") },
      { kind: "delete-node", name: "n9" },
      { kind: "delete-service", key: "ns/none" },
      { kind: "delete-slice", key: "ns/web/none" },
    ]);
    store.replace({ services: [service()], slices: [slice([endpoint("10.1.0.1")])], nodes: [node("n1")] });
    expect(store.snapshot).toBe(before);
  });

  test("a snapshot that reuses unchanged slices of a list", () => {
    const store = synced();
    const made = (address: string, triggeredAtMs: number) => [
      slice([endpoint("10.1.0.1")], { triggeredAtMs }),
      slice([endpoint("10.1.0.3"), endpoint(address)], { name: "web-b", triggeredAtMs }),
    ];
    store.replace({ slices: made("10.1.0.4", 5) });
    const [a, b] = slicesOf(store.snapshot, "ns/web");
    store.replace({ slices: made("10.1.0.5", 6) });
    const [nextA, nextB] = slicesOf(store.snapshot, "ns/web");
    expect(nextA).toBe(a);
    expect(nextB).toMatchObject({ triggeredAtMs: 6 });
    expect(nextB?.endpoints[0]).toBe(b?.endpoints[0]);
  });

  test("a snapshot that reuses unchanged endpoints of a changed slice", () => {
    const store = new Store();
    const made = () => [endpoint("10.1.0.1"), endpoint("10.1.0.2"), endpoint("10.1.0.3")];
    store.replace({ ...empty, slices: [slice(made())] });
    const [before] = slicesOf(store.snapshot, "ns/web");
    const [, second, third] = made();
    const changed = { ...endpoint("10.1.0.3"), nodeName: "n9" };
    store.apply([{ kind: "put-slice", slice: slice([third ?? changed, endpoint("10.1.0.4"), second ?? changed]) }]);
    const [now] = slicesOf(store.snapshot, "ns/web");
    expect(now?.endpoints.map((one) => before?.endpoints.indexOf(one))).toEqual([2, -1, 1]);
    store.apply([{ kind: "put-slice", slice: slice([changed]) }]);
    expect(slicesOf(store.snapshot, "ns/web")[0]?.endpoints).toEqual([changed]);
  });
});

test("Store.next waits for a later revision, returns only the newest, and leaves no waiter behind", async () => {
  const store = new Store();
  const stop = new AbortController();
  const next = store.next(0, stop.signal);
  expect(store.waitingCount).toBe(1);
  store.replace(empty);
  for (const name of ["n1", "n2"]) store.apply([{ kind: "put-node", node: node(name) }]);
  expect((await next)?.revision).toBe(3);
  const parked = store.next(3, stop.signal);
  stop.abort();
  expect(await parked).toBeUndefined();
  expect(store.waitingCount).toBe(0);
});
