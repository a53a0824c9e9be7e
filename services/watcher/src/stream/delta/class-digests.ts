import { toggleDigests } from "../../items/item-digests.ts";
import type { ViewClass } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { perClass } from "./class-values.ts";

const digests = perClass(
  () => 0n,
  (digest, removed, added) => toggleDigests(toggleDigests(digest, removed), added),
);

/**
 * Returns the exclusive or of the digests of all items (encoded Services and endpoints) that the nodes of a view class
 * share. The digest of a node's view also covers the node's overlays: its differences from these items.
 *
 * *Cost:* the items that changed since the last snapshot for which it was requested; all items, for a new class.
 *
 * `nodeProjection` calls it for the digest in each sync marker, which tells a node whether its view is complete.
 * Separate from `nodeProjection`, because all nodes of a class share it, and from `BucketIndex`, which keeps one digest
 * for each bucket.
 */
export function classDigest(snapshot: Snapshot, viewClass: ViewClass): bigint {
  // One digest for the Services without zone hints, and one for those with them, if there are any.
  return digests(snapshot, viewClass).reduce((sum, digest) => sum ^ digest, 0n);
}

/**
 * Computes in steps the digest of a class that was not requested before, and yields between the steps. `wholeView`,
 * `resumeView` and `prepareViews` call it before `classDigest` is needed, so that the event loop is not blocked.
 */
export function classDigestInSteps(snapshot: Snapshot, viewClass: ViewClass): Iterable<undefined> {
  return digests.inSteps(snapshot, viewClass);
}
