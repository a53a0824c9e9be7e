import { getOrMake } from "@kpng/model/get-or-make.ts";
import { type BucketDigests, bucketCount, encodeBuckets } from "@kpng/model/wire/item-digest.ts";
import { keepFrame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { digestOf, freshDigestOf } from "../../items/item-digests.ts";
import { type NodeViewRequest, nodeItems, nodeViewOrder, type ViewClass } from "../../items/node-view-items.ts";
import { ownItems, ownUnits } from "../../items/own-units.ts";
import { classItemsAt } from "../../items/service-units.ts";
import { type ViewTarget, viewTargetIn } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { diffItems } from "./diff-items.ts";
import type { Changes } from "./projection.ts";
import { classBuckets, proxyNamesIn } from "./view-digest.ts";
import { wholeView } from "./whole-view.ts";

/**
 * Compares what a subscriber holds with what it should have, bucket by bucket, and puts all items of the buckets that
 * differ. It does not matter who served the subscriber before: equal items have equal bytes on every replica of a
 * version, and on a replica of another version what differs is sent again. The changes begin with Keep. Who understands
 * packed operations and holds little that is right gets all of it, packed.
 *
 * *Cost:* the node's own endpoints and the items of the buckets that differ; for the first of an audience that differs at
 * a snapshot, all items.
 */
export function resumeView(snapshot: Snapshot, request: NodeViewRequest, held: BucketDigests): Changes {
  const target = viewTargetIn(snapshot, request);
  const { viewClass } = target;
  const digests = classBuckets(snapshot, viewClass).copy();
  const hidden = new Set<Item>();
  const own: Item[] = request.wantsNode ? [...nodeItems(snapshot, request.nodeName)] : [];
  for (const unit of ownUnits(snapshot, target)) {
    const items = ownItems(unit);
    own.push(...items.own);
    for (const item of items.hidden) {
      hidden.add(item);
      digests.toggle(digestOf(item));
    }
  }
  const ownDigests = new Map(own.map((item) => [item, freshDigestOf(item)]));
  for (const digest of ownDigests.values()) digests.toggle(digest);
  const isRight = (bucket: number): boolean => digests.isSameBucket(held, bucket);
  const wrong = Array.from({ length: bucketCount }, (_, bucket) => bucket).filter((bucket) => !isRight(bucket));
  if (request.takesBatches && wrong.length > maxWrongShare * bucketCount) return afresh(snapshot, request, target);
  const wanted = own.filter((item) => !isRight(ownDigests.get(item)?.bucket ?? 0));
  if (wrong.length > 0) {
    const byBucket = itemsByBucket(snapshot, viewClass);
    for (const bucket of wrong) {
      for (const item of byBucket[bucket] ?? []) if (!hidden.has(item)) wanted.push(item);
    }
  }
  const opening = keepFrame(encodeBuckets(isRight));
  return { isEmpty: false, frames: () => [opening, ...diffItems([], wanted, nodeViewOrder).frames()] };
}

/** With more buckets wrong than this share, the whole view, packed, is shorter than what is in them. */
const maxWrongShare = 1 / 4;

/** Nothing is kept, and all of it is put. */
function afresh(snapshot: Snapshot, request: NodeViewRequest, target: ViewTarget): Changes {
  return {
    isEmpty: false,
    *frames() {
      yield keepFrame(encodeBuckets(() => false));
      yield* wholeView(snapshot, request, target).frames();
    },
  };
}

type ItemsByBucket = readonly (readonly Item[])[];

const buckets = new WeakMap<Snapshot, Map<string, ItemsByBucket>>();

/** All that an audience is told. */
function itemsByBucket(snapshot: Snapshot, viewClass: ViewClass): ItemsByBucket {
  const make = (): ItemsByBucket => {
    const made = Array.from({ length: bucketCount }, (): Item[] => []);
    for (const key of snapshot.services.keys()) {
      for (const item of classItemsAt(snapshot, key, viewClass).items) made[digestOf(item).bucket]?.push(item);
    }
    return made;
  };
  // There is no end of the names that subscribers can make up: only for those that a Service has is anything kept.
  if (!proxyNamesIn(snapshot).has(viewClass.proxyName)) return [];
  const byClass = getOrMake(buckets, snapshot, () => new Map<string, ItemsByBucket>());
  return getOrMake(byClass, viewClass.key, make);
}
