import { bucketCount } from "@kpng/model/wire/digest.ts";
import { describe, expect, test } from "vitest";
import { serviceStates } from "../../items/service-state.ts";
import { viewTargetIn } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { type BucketIndex, classIndexes, indexInSlices } from "./class-index.ts";

const names = Array.from({ length: 300 }, (_, index) => `s${index}`);

function makeStore(hintedZones: (name: string) => readonly string[] = () => []): Store {
  const store = new Store();
  store.replace({
    services: names.map((name) => service({ name })),
    slices: names.map((name) =>
      slice([endpoint("10.1.0.1", { hintedZones: hintedZones(name) })], { serviceName: name }),
    ),
    nodes: [node("n1", { zone: "z1" }), node("n2", { zone: "z2" })],
  });
  return store;
}

const requestOf = (nodeName: string) => ({ nodeName, proxyName: "", isExtended: true, wantsNode: false });

function indexesOf(snapshot: Snapshot, nodeName: string): readonly BucketIndex[] {
  return classIndexes(snapshot, viewTargetIn(snapshot, requestOf(nodeName)).viewClass);
}

const numbers = Array.from({ length: bucketCount }, (_, number) => number);

describe("the bucket index", () => {
  test("of the next snapshot shares all buckets in which no item changed", () => {
    const store = makeStore();
    const [before] = indexesOf(store.snapshot, "n1");
    store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.2")], { serviceName: "s7" }) }]);
    const [after] = indexesOf(store.snapshot, "n1");
    const changed = numbers.filter((number) => before?.bucket(number) !== after?.bucket(number));
    // The endpoint that is gone and the new one.
    expect(changed).toHaveLength(2);
    expect(before && after?.digests.differing(before.digests)).toEqual(changed);
  });

  test("of a zone that no hint names shares the lists of items", () => {
    const store = makeStore((name) => (name === "s7" ? ["z1"] : []));
    const lists = new Set<unknown>();
    for (let move = 0; move < 50; move += 1) {
      store.apply([{ kind: "put-node", node: node("n3", { zone: `moved-${move}` }) }]);
      indexesOf(store.snapshot, "n3");
      const { viewClass } = viewTargetIn(store.snapshot, requestOf("n3"));
      lists.add(serviceStates.at(store.snapshot).get("ns/s7")?.sharedItems(viewClass));
    }
    // No hint names any of these zones. The first states are not derived from each other: another store has newer ones.
    expect(lists.size).toBeLessThan(10);
  });
});

test("a change while the index is computed in steps does not make the next one start again", () => {
  const store = makeStore();
  const { viewClass } = viewTargetIn(store.snapshot, { ...requestOf("n1"), proxyName: "steps" });
  const own = { ...viewClass, proxyName: "steps", key: "steps" };
  store.apply(names.map((name) => ({ kind: "put-service", service: service({ name, proxyName: "steps" }) })));
  store.apply(
    names.map((serviceName, at) => {
      const pods = Array.from({ length: 20 }, (_, pod) => endpoint(`10.${pod}.${at >> 8}.${at & 255}`));
      return { kind: "put-slice", slice: slice(pods, { serviceName }) };
    }),
  );
  const isPaused = (steps: Iterator<unknown>): boolean => steps.next().done !== true;
  const steps = indexInSlices(store.snapshot, own);
  expect(isPaused(steps)).toBe(true);
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.9.9.9")], { serviceName: "s7" }) }]);
  // Another subscriber derives the values of the new snapshot meanwhile.
  classIndexes(store.snapshot, viewClass);
  while (isPaused(steps));
  expect(isPaused(indexInSlices(store.snapshot, own))).toBe(false);
});
