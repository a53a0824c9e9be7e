import { BucketDigests } from "@kpng/model/wire/digest.ts";
import { Health } from "@kpng/process/health/health.ts";
import { expect, onTestFinished, test } from "vitest";
import { type NodeViewRequest, viewTargetIn } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { classIndexes } from "../delta/class-index.ts";
import { nodeProjection } from "../delta/node-projection.ts";
import { type Changes, pause } from "../delta/projection.ts";
import { prepareViews } from "./rounds.ts";

const names = Array.from({ length: 300 }, (_, index) => `s${index}`);

// Values of a class follow the snapshots of all stores in a process, so each test has a class of its own.
function fill(store: Store, proxyName: string, zone = ""): void {
  const hints = zone === "" ? {} : { hintedZones: [zone] };
  store.replace({
    services: names.map((name) => service({ name, proxyName })),
    slices: names.map((name, at) =>
      slice(
        Array.from({ length: 10 }, (_, pod) =>
          endpoint(`10.${pod}.${at >> 8}.${at & 255}`, { ...hints, podName: `${name}-${pod}`, nodeName: `n${pod}` }),
        ),
        { name, serviceName: name },
      ),
    ),
    nodes: [node("n1", { zone: "z1" }), node("n2", { zone: "z2" })],
  });
}

const requestFor = (proxyName: string): NodeViewRequest => {
  return { nodeName: "n1", proxyName, isExtended: true, wantsNode: true, takesBatches: true };
};

function pausesIn({ frames }: Changes): number {
  return [...frames()].filter((frame) => frame === pause).length;
}

/**
 * Number of pauses before Keep: the steps that compute what a class shares. Each subscriber fills its own gaps later.
 */
function pausesBeforeKeep({ frames }: Changes): number {
  return [...frames()].findIndex((frame) => frame !== pause);
}

test.each([
  { name: "without zone hints", zone: "" },
  { name: "with zone hints", zone: "z1" },
])("a watcher is ready when what all views share is computed, $name", async ({ zone }) => {
  const [store, health, stop] = [new Store(), new Health(), new AbortController()];
  onTestFinished(() => stop.abort());
  const preparing = prepareViews({ store, health, proxyName: `ready${zone}` }, stop.signal);
  expect(health.isReady).toBe(false);
  fill(store, `ready${zone}`, zone);
  expect(health.isReady).toBe(false);
  await preparing;
  expect(health.isReady).toBe(true);
  const view = nodeProjection(requestFor(`ready${zone}`));
  expect(pausesIn(view.whole(store.snapshot))).toBe(0);
  expect(pausesBeforeKeep(view.resume(store.snapshot, new BucketDigests()))).toBe(0);
});

test("a change while a resumed view is computed in steps does not make the next one start again", () => {
  const store = new Store();
  fill(store, "changed");
  const view = nodeProjection(requestFor("changed"));
  const frames = view.resume(store.snapshot, new BucketDigests()).frames()[Symbol.iterator]();
  expect(frames.next().value).toBe(pause);
  const before = store.snapshot;
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.9.9.9")], { name: "s7", serviceName: "s7" }) }]);
  const digestsOf = (snapshot: Snapshot): BucketDigests => {
    const { viewClass } = viewTargetIn(snapshot, requestFor("changed"));
    return classIndexes(snapshot, viewClass)[0]?.digests ?? new BucketDigests();
  };
  // Another subscriber derives the values of the new snapshot meanwhile.
  const expected = digestsOf(store.snapshot);
  while (frames.next().done !== true);
  expect(digestsOf(before).differing(expected)).toHaveLength(11);
  expect(digestsOf(store.snapshot).differing(expected)).toEqual([]);
  expect(pausesBeforeKeep(view.resume(store.snapshot, new BucketDigests()))).toBe(0);
});
