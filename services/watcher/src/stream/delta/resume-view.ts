import { BucketDigests, bucketCount, encodeBuckets } from "@kpng/model/wire/item-digest.ts";
import { type Frame, keepFrame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { digestOf, uncachedDigestOf } from "../../items/item-digests.ts";
import { nodeViewOrder } from "../../items/node-view-items.ts";
import { type Overlay, overlaysOf } from "../../items/overlay.ts";
import type { ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { type BucketGap, fillGaps, isFilled, missedChanges } from "./bucket-gaps.ts";
import { type BucketIndex, bucketIndexes } from "./bucket-index.ts";
import { classDigestInSteps } from "./class-digests.ts";
import { diffInSteps } from "./diff-items.ts";
import { type Changes, pause } from "./projection.ts";
import { deleteOp } from "./snapshot-delta.ts";
import { wholeView } from "./whole-view.ts";

/**
 * Returns the first batch of a node that reconnects and sends the digests of the view that it holds. Compares them with
 * the digests of its current view, bucket by bucket, and puts all items of the buckets that differ; a bucket contains
 * the items whose paths have the same hash. The changes begin with Keep, which names the buckets that the node keeps.
 *
 * The held view may come from any replica: equal items have equal bytes on all replicas of one version, and what
 * differs on another version is sent again. A subscriber that understands batches also keeps buckets whose earlier
 * state it holds, and gets only their changes since then. It gets the other buckets compressed, as its whole class
 * does, and then the node's corrections; if it keeps few buckets, it gets the whole view.
 *
 * `nodeProjection` calls it; `wholeView` makes all other first batches. Calls `onOverlays` with the node's overlays
 * (its differences from its class), for the digest of the view, when the first frame is read.
 *
 * *Cost:* the node's own endpoints and the buckets that differ. A bucket is encoded once, and again when one of its
 * items changes.
 *
 * Separate from `BucketIndex` and `fillGaps`, which hold and compute the shared part for all subscribers.
 */
export function resumeView(
  snapshot: Snapshot,
  target: ViewTarget,
  held: BucketDigests,
  onOverlays: (overlays: readonly Overlay[]) => void = () => undefined,
): Changes {
  return { isEmpty: false, frames: () => resumedFrames(snapshot, target, held, onOverlays) };
}

function* resumedFrames(
  snapshot: Snapshot,
  target: ViewTarget,
  held: BucketDigests,
  onOverlays: (overlays: readonly Overlay[]) => void,
): Iterable<Frame> {
  const { viewClass } = target;
  for (const _ of bucketIndexes.inSteps(snapshot, viewClass)) yield pause;
  for (const _ of classDigestInSteps(snapshot, viewClass)) yield pause;
  const overlays = overlaysOf(snapshot, target);
  onOverlays(overlays);
  const hidden = overlays.flatMap((overlay) => overlay.hidden);
  const own = overlays.flatMap((overlay) => overlay.own).map((item) => ({ item, digest: uncachedDigestOf(item) }));
  const corrections = new BucketDigests();
  for (const item of hidden) corrections.toggle(digestOf(item));
  for (const { digest } of own) corrections.toggle(digest);
  const indexes = bucketIndexes(snapshot, viewClass);
  const digests = corrections.copy();
  for (const index of indexes) digests.toggleAll(index.digests);
  const { takesBatches = false } = target.request;
  const differing = digests.differing(held);
  const missed = new Map(
    takesBatches
      ? differing.map((number) => [number, missedChanges(indexes, number, held.at(number) ^ corrections.at(number))])
      : [],
  );
  const lacked = new Set(differing.filter((number) => missed.get(number) === undefined));
  if (takesBatches && lacked.size > maxLackedShare * bucketCount) {
    yield keepFrame(encodeBuckets(() => false));
    yield* wholeView(snapshot, target).frames();
    return;
  }
  const gaps = new Map(differing.map((number) => [number, { number, missed: missed.get(number) }]));
  const isCorrected = ({ path }: Item, bucket: number): boolean => {
    const gap = gaps.get(bucket);
    return gap !== undefined && isFilled(indexes, gap, path);
  };
  const lacking: Lacking = {
    gaps: [...gaps.values()],
    hidden: hidden.filter((item) => isCorrected(item, digestOf(item).bucket)),
    own: own.flatMap(({ item, digest }) => (isCorrected(item, digest.bucket) ? [item] : [])),
  };
  yield keepFrame(encodeBuckets((bucket) => !lacked.has(bucket)));
  yield* takesBatches ? packedFrames(indexes, lacking) : orderedFrames(indexes, lacking);
}

/**
 * Returns the digests by bucket of a whole view, as a node computes them. For the measurements of reconnecting nodes in
 * test/scale.
 */
export function viewBuckets(snapshot: Snapshot, target: ViewTarget): BucketDigests {
  const digests = classBuckets(snapshot, target);
  for (const { hidden, own } of overlaysOf(snapshot, target)) {
    for (const item of hidden) digests.toggle(digestOf(item));
    for (const item of own) digests.toggle(uncachedDigestOf(item));
  }
  return digests;
}

/** If it lacks a larger share of the buckets, the whole view is shorter: it is compressed in larger blocks. */
const maxLackedShare = 1 / 2;

/** The buckets in which a subscriber lacks items, and its corrections of what it is sent of them. */
interface Lacking {
  readonly gaps: readonly BucketGap[];
  /** The items that it is sent because the class shares them, and does not get. */
  readonly hidden: readonly Item[];
  /** The items at the same paths or in the same whole buckets that only the node gets. */
  readonly own: readonly Item[];
}

/** Returns a copy of the digests of the items that the target's class shares. */
function classBuckets(snapshot: Snapshot, { viewClass }: ViewTarget): BucketDigests {
  const digests = new BucketDigests();
  for (const index of bucketIndexes(snapshot, viewClass)) digests.toggleAll(index.digests);
  return digests;
}

function* packedFrames(indexes: readonly BucketIndex[], { gaps, hidden, own }: Lacking): Iterable<Frame> {
  const filling = yield* fillGaps(indexes, gaps);
  if (filling.length > 0) yield filling;
  const kept = new Set(own.map(({ path }) => path));
  const deletes = hidden.filter(({ path }) => !kept.has(path)).map((item) => deleteOp(item).frame);
  if (deletes.length + own.length > 0) yield Buffer.concat([...deletes, ...own.map(({ frame }) => frame)]);
}

function orderedFrames(indexes: readonly BucketIndex[], lacking: Lacking): Iterable<Frame> {
  return diffInSteps([], itemsOf(indexes, lacking), nodeViewOrder).frames();
}

function* itemsOf(indexes: readonly BucketIndex[], { gaps, hidden, own }: Lacking): Iterable<Item> {
  const without = new Set(hidden.map(({ path }) => path));
  for (const { number } of gaps) {
    for (const index of indexes) {
      for (const item of index.bucket(number).items) if (!without.has(item.path)) yield item;
    }
  }
  yield* own;
}
