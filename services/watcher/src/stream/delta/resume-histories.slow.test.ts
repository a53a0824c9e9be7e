import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests, itemBucket } from "@kpng/model/wire/digest.ts";
import { makePick, makeRandom } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { digestOf, nodeViewOrder } from "../../items/item.ts";
import type { NodeViewRequest } from "../../items/view-target.ts";
import type { ObjectChange } from "../../source/source.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { applied, type Held, plainChanges } from "../../testing/applied-ops.ts";
import { addresses, endpoint, node, service, slice } from "../../testing/build.ts";
import { expectedItems } from "../../testing/expected-items.ts";
import { nodeProjection } from "./node-projection.ts";

/**
 * Resumes after random histories in which all items share four buckets, so that each bucket has many items and many
 * past changes. Separate from the histories of `node-projection.slow.test.ts`, whose few items have a bucket each.
 */

/** One for all tests: buckets remember the changes of the store with the highest revision. */
const store = new Store();

const usedBuckets = 4;

const requestOf = (nodeName: string): NodeViewRequest => ({
  nodeName,
  proxyName: "",
  isExtended: true,
  wantsNode: true,
  takesBatches: true,
});

/** Pods by Service; the paths of all are in the first buckets. */
const podsByService = new Map(
  namesIn(SetName.ServicesSet, "ns/s", 4).map((name) => [name, namesIn(SetName.EndpointsSet, `ns/${name}/p`, 8)]),
);

/** Returns the last parts of `count` paths in these buckets. */
function namesIn(set: SetName, prefix: string, count: number): readonly string[] {
  const names: string[] = [];
  for (let index = 0; names.length < count; index += 1) {
    const path = `${prefix}${index}`;
    if (itemBucket(set, path) < usedBuckets) names.push(path.slice(path.lastIndexOf("/") + 1));
  }
  return names;
}

type Pick = ReturnType<typeof makePick>;

function randomChange(pick: Pick): ObjectChange {
  const name = pick(...podsByService.keys());
  switch (pick("service", "slice", "slice", "slice", "slice", "slice", "slice", "gone", "node")) {
    case "service":
      return { kind: "put-service", service: randomService(name, pick) };
    case "node":
      return { kind: "put-node", node: node(pick("n1", "n2"), { zone: pick("z1", "z2", "") }) };
    case "gone":
      return pick<ObjectChange>(
        { kind: "delete-service", key: `ns/${name}` },
        { kind: "delete-slice", key: `ns/${name}/${pick("a", "b")}` },
      );
    default:
      return { kind: "put-slice", slice: randomSlice(name, pick) };
  }
}

function randomService(name: string, pick: Pick) {
  return service({
    name,
    internalTrafficPolicy: pick("Cluster", "Cluster", "Local"),
    ...pick({}, {}, { externalIPs: addresses("192.0.2.1") }),
  });
}

function randomSlice(serviceName: string, pick: Pick) {
  // Few values, so that histories return to earlier items; and many have Services with hints beside those without.
  const hintedZones = pick<readonly string[]>([], [], [], ["z1"], ["z1", "z2"]);
  const hasNodeHints = hintedZones.length === 0 && pick(true, false, false);
  const name = pick("a", "b");
  const pods = [...(podsByService.get(serviceName) ?? []).entries()].filter(
    ([index]) => index % 2 === (name === "a" ? 0 : 1),
  );
  const made = pods
    .filter(() => pick(true, true, false))
    .map(([index, podName]) =>
      endpoint(`10.1.${pick(0, 0, 1)}.${index}`, {
        podName,
        nodeName: pick("n1", "n2", "", ""),
        hintedZones,
        hintedNodes: hasNodeHints ? pick(["n1"], ["n1", "n2"], ["n2"]) : [],
      }),
    );
  return slice(made, { serviceName, name, hasPodKeys: true });
}

function heldIn(snapshot: Snapshot, request: NodeViewRequest): Held {
  return applied(new Map(), plainChanges([], expectedItems(snapshot, request), nodeViewOrder));
}

/** Resumes with the view that `before` had in a snapshot, and expects the view of `request`. */
function checkResume(held: readonly [Snapshot, NodeViewRequest], snapshot: Snapshot, request: NodeViewRequest): void {
  const changes = nodeProjection(request).resume(snapshot, digestsIn(...held));
  expect(applied(heldIn(...held), changes)).toEqual(heldIn(snapshot, request));
}

function digestsIn(snapshot: Snapshot, request: NodeViewRequest): BucketDigests {
  const digests = new BucketDigests();
  for (const item of expectedItems(snapshot, request)) digests.toggle(digestOf(item));
  return digests;
}

test.each([1, 2, 3, 4])("a node that resumes after a random history has exactly its view (seed %i)", (seed) => {
  const pick = makePick(makeRandom(seed));
  store.replace({
    services: [...podsByService.keys()].map((name) => service({ name })),
    slices: [],
    // A zone that no other history has: its class is new when it is first asked for.
    nodes: [node("n1", { zone: "z1" }), node("n2", { zone: "z2" }), node("late", { zone: `late-${seed}` })],
  });
  const past = [store.snapshot];
  for (let step = 0; step < 40; step += 1) {
    store.apply(Array.from({ length: pick(1, 1, 1, 2, 6) }, () => randomChange(pick)));
    past.push(store.snapshot);
    const nodeNames = step < 20 ? ["n1", "n2", "stranger"] : ["n1", "n2", "stranger", "late"];
    for (const nodeName of nodeNames) {
      const before = past.at(-1 - pick(1, 1, 2, 3, 5, 8, 13)) ?? store.snapshot;
      // Sometimes a node holds what another one was sent.
      const holder = pick(nodeName, nodeName, nodeName, ...nodeNames);
      try {
        checkResume([before, requestOf(holder)], store.snapshot, requestOf(nodeName));
      } catch (error) {
        throw new Error(`step ${step}: ${nodeName} with the view of ${holder}`, { cause: error });
      }
    }
  }
});
