import { getOrMake } from "@kpng/model/get-or-make.ts";
import { type BucketDigests, bucketCount, encodeBuckets } from "@kpng/model/wire/item-digest.ts";
import { keepFrame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { digestOf, uncachedDigestOf } from "../../items/item-digests.ts";
import { nodeViewOrder } from "../../items/node-view-items.ts";
import { overlaysOf } from "../../items/overlay.ts";
import { sharedItemsAt } from "../../items/service-state.ts";
import { type NodeViewRequest, type ViewClass, type ViewTarget, viewTargetIn } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { classBuckets } from "./class-digests.ts";
import { diffItems } from "./diff-items.ts";
import type { Changes } from "./projection.ts";
import { wholeView } from "./whole-view.ts";

/**
 * Compares the digests that a subscriber holds with those of its view, bucket by bucket, and puts all items of the
 * buckets that differ. The changes begin with Keep, which names the buckets that the subscriber keeps.
 *
 * The subscriber may come from any replica: equal items have equal bytes on all replicas of one version, and what
 * differs on another version is sent again. A subscriber that understands batches and holds few matching buckets gets
 * the whole view in batches instead.
 *
 * *Cost:* the node's own endpoints and the items of the buckets that differ. For each snapshot and class, the first
 * subscriber with such a bucket costs all items.
 */
export function resumeView(snapshot: Snapshot, request: NodeViewRequest, held: BucketDigests): Changes {
  const target = viewTargetIn(snapshot, request);
  const digests = classBuckets(snapshot, target.viewClass).copy();
  const overlays = overlaysOf(snapshot, target);
  const hidden = new Set(overlays.flatMap((overlay) => overlay.hidden));
  const own = overlays.flatMap((overlay) => overlay.own);
  const ownDigests = new Map(own.map((item) => [item, uncachedDigestOf(item)]));
  for (const item of hidden) digests.toggle(digestOf(item));
  for (const digest of ownDigests.values()) digests.toggle(digest);
  const isSame = (bucket: number): boolean => digests.isSameBucket(held, bucket);
  const differing = Array.from({ length: bucketCount }, (_, bucket) => bucket).filter((bucket) => !isSame(bucket));
  if (request.takesBatches && differing.length > maxDifferingShare * bucketCount) return keepNothing(snapshot, target);
  const wanted = own.filter((item) => !isSame(ownDigests.get(item)?.bucket ?? 0));
  if (differing.length > 0) {
    const byBucket = itemsByBucket(snapshot, target.viewClass);
    for (const bucket of differing) {
      for (const item of byBucket[bucket] ?? []) if (!hidden.has(item)) wanted.push(item);
    }
  }
  const keep = keepFrame(encodeBuckets(isSame));
  return { isEmpty: false, frames: () => [keep, ...diffItems([], wanted, nodeViewOrder).frames()] };
}

/** With a larger share of differing buckets, the compressed whole view is shorter than the items in these buckets. */
const maxDifferingShare = 1 / 4;

/** The whole view, after a Keep that names no bucket. */
function keepNothing(snapshot: Snapshot, target: ViewTarget): Changes {
  return {
    isEmpty: false,
    *frames() {
      yield keepFrame(encodeBuckets(() => false));
      yield* wholeView(snapshot, target).frames();
    },
  };
}

type ItemsByBucket = readonly (readonly Item[])[];

const buckets = new WeakMap<Snapshot, Map<string, ItemsByBucket>>();

/** All items that a class shares. */
function itemsByBucket(snapshot: Snapshot, viewClass: ViewClass): ItemsByBucket {
  const byClass = getOrMake(buckets, snapshot, () => new Map<string, ItemsByBucket>());
  return getOrMake(byClass, viewClass.key, () => {
    const byBucket = Array.from({ length: bucketCount }, (): Item[] => []);
    for (const key of snapshot.services.keys()) {
      for (const item of sharedItemsAt(snapshot, key, viewClass).items) byBucket[digestOf(item).bucket]?.push(item);
    }
    return byBucket;
  });
}
