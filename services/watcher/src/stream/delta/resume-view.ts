import { type BucketDigests, bucketCount, encodeBuckets } from "@kpng/model/wire/digest.ts";
import { type Frame, keepFrame } from "../../items/frames.ts";
import { deleteFrameOf, digestOf } from "../../items/item.ts";
import { type Overlay, overlaysOf } from "../../items/overlay.ts";
import type { ViewTarget } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { classIndex, indexWithPauses } from "./class-index.ts";
import { wholeView } from "./whole-view.ts";

/**
 * Yields the first batch of a node that reconnects and sends the digests of the view that it holds.
 *
 * A view's items are distributed over 1 024 buckets by the hash of their paths. The node sends the digest of each
 * bucket (8 KiB in all). The watcher compares these digests with those of the node's current view. It answers with
 * Keep, which names the buckets that the node keeps, followed by puts of all items in the other buckets:
 *
 * ```text
 * node holds      7: c4   8: 55   9: 90
 * current view    7: c4   8: 61   9: 90
 * batch           Keep 7, 9; put the 54 items of bucket 8, compressed once for all nodes of the class;
 *                 then put and delete the items in bucket 8 that differ for this node
 * ```
 *
 * The held view may come from any replica and any time, because equal items have equal bytes on all replicas of one
 * version. A node that lacks most buckets gets the whole view, which is compressed in larger blocks. Remembering the
 * changes of each bucket would shorten the batches (3 instead of 211 KiB after 100 missed changes), but 1 000 nodes
 * would take just as long to resume, and a fresh replica, where most nodes resume, has nothing to remember.
 *
 * Calls `onOverlays` with the node's overlays. *Cost:* proportional to the node's own endpoints and to the buckets that
 * differ.
 */
export function* resumeView(
  snapshot: Snapshot,
  target: ViewTarget,
  clientDigests: BucketDigests,
  onOverlays: (overlays: readonly Overlay[]) => void = () => undefined,
): Generator<Frame, void> {
  yield* indexWithPauses(snapshot, target.viewClass);
  const overlays = overlaysOf(snapshot, target);
  onOverlays(overlays);
  const missing = new Set(viewBuckets(snapshot, target, overlays).differing(clientDigests));
  if (missing.size > maxMissingShare * bucketCount) {
    yield keepFrame(encodeBuckets(() => false));
    yield* wholeView(snapshot, target);
    return;
  }
  yield keepFrame(encodeBuckets((bucket) => !missing.has(bucket)));
  const buckets = classIndex(snapshot, target.viewClass).buckets.filter((_, number) => missing.has(number));
  // All Services come first, because an endpoint needs its Service.
  for (const { services } of buckets) if (services.length > 0) yield services;
  for (const bucket of buckets) {
    const endpoints = target.request.takesBatches ? bucket.endpoints : bucket.plainEndpoints;
    if (endpoints.length > 0) yield endpoints;
  }
  const added = overlays.flatMap((overlay) => overlay.added).filter((item) => missing.has(digestOf(item).bucket));
  const replaced = new Set(added.map(({ path }) => path));
  const deleted = overlays
    .flatMap(({ removed }) => removed)
    .filter((item) => missing.has(digestOf(item).bucket) && !replaced.has(item.path));
  const corrections = [...deleted.map(deleteFrameOf), ...added.map(({ frame }) => frame)];
  if (corrections.length > 0) yield Buffer.concat(corrections);
}

/** Maximum share of the buckets that a node may lack. Beyond it, the whole view is shorter. */
const maxMissingShare = 1 / 2;

/** Returns the bucket digests of a whole view, as a node computes them. */
export function viewBuckets(
  snapshot: Snapshot,
  target: ViewTarget,
  overlays: readonly Overlay[] = overlaysOf(snapshot, target),
): BucketDigests {
  const digests = classIndex(snapshot, target.viewClass).digests.copy();
  for (const { removed, added } of overlays) {
    for (const item of removed) digests.toggle(digestOf(item));
    for (const item of added) digests.toggle(digestOf(item));
  }
  return digests;
}
