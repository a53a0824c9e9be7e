import { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import { describe, expect, test } from "vitest";
import type { Frame } from "../../items/frames.ts";
import { digestOf } from "../../items/item-digests.ts";
import { viewTargetIn } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { expectedItems } from "../../testing/expected-items.ts";
import { nodeProjection } from "./node-projection.ts";
import { pause } from "./projection.ts";
import { viewBuckets } from "./resume-view.ts";

const request = { nodeName: "n1", proxyName: "", isExtended: true, wantsNode: false, takesBatches: true };

const names = Array.from({ length: 200 }, (_, index) => `s${index}`);

const slicesWith = (address: string) =>
  names.map((serviceName) => slice([endpoint(address)], { name: `${serviceName}-a`, serviceName }));

function storeWith(address: string): Store {
  const store = new Store();
  const services = names.map((name) => service({ name }));
  store.replace({ services, slices: slicesWith(address), nodes: [node("n1")] });
  return store;
}

const digestsOf = (snapshot: Snapshot): BucketDigests => viewBuckets(snapshot, viewTargetIn(snapshot, request));

function resume(snapshot: Snapshot, held: BucketDigests): Iterable<Frame> {
  return nodeProjection(request).resume(snapshot, held).frames();
}

/** Digests of the view that a subscriber holds, and a snapshot in which every endpoint differs from it. */
type Resumed = readonly [held: BucketDigests, snapshot: Snapshot];

/** A view of another replica: the index was never in its state. */
function whole(): Resumed {
  const held = new BucketDigests();
  for (const item of expectedItems(storeWith("10.1.0.1").snapshot, request)) held.toggle(digestOf(item));
  return [held, storeWith("10.1.0.2").snapshot];
}

/** The same replica, whose buckets remember their last changes. */
function changed(): Resumed {
  const store = storeWith("10.1.0.3");
  const held = digestsOf(store.snapshot);
  store.apply(slicesWith("10.1.0.4").map((one) => ({ kind: "put-slice", slice: one })));
  return [held, store.snapshot];
}

describe.each([
  { name: "whole buckets", make: whole },
  { name: "the changes of buckets", make: changed },
])("a subscriber that lacks $name", ({ make }) => {
  test("pauses after every eight of them", () => {
    const [held, snapshot] = make();
    const frames = [...resume(snapshot, held)];
    const keep = frames.findIndex((frame) => frame !== pause);
    const steps = 1 + frames.slice(keep + 1).filter((frame) => frame === pause).length;
    const gaps = digestsOf(snapshot).differing(held).length;
    expect(gaps).toBeGreaterThan(200);
    expect(gaps / steps).toBeLessThanOrEqual(8);
  });

  test("shares the result with the next one, which does not pause", () => {
    const [held, snapshot] = make();
    const first = [...resume(snapshot, held)].filter((frame) => frame !== pause);
    const second = [...resume(snapshot, held)];
    expect(second).not.toContain(pause);
    expect(second[1]).toBe(first[1]);
  });

  test("gets the same frames as another one that is served between its steps", () => {
    const [held, snapshot] = make();
    const [one, other] = [resume(snapshot, held), resume(snapshot, held)].map((frames) => frames[Symbol.iterator]());
    const read: Frame[][] = [[], []];
    for (let isDone = false; !isDone; ) {
      isDone = true;
      for (const [index, iterator] of [one, other].entries()) {
        const next = iterator?.next();
        if (next?.done !== false) continue;
        isDone = false;
        if (next.value !== pause) read[index]?.push(next.value);
      }
    }
    expect(read[0]?.length).toBeGreaterThan(1);
    expect(read[1]).toEqual(read[0]);
  });
});
