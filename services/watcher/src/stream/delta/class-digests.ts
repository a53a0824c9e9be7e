import { toggleDigests } from "../../items/item-digests.ts";
import type { ViewClass } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { perClass } from "./class-values.ts";

const digests = perClass(
  () => 0n,
  (digest, removed, added) => toggleDigests(toggleDigests(digest, removed), added),
);

/**
 * Returns the exclusive or of the digests of all items that a class shares. The digest of a node's view adds those of
 * the node's overlays.
 *
 * *Cost:* the items that changed since the last snapshot for which it was requested; all items, for a new class.
 *
 * `nodeProjection` calls it for the digest in each sync marker, which tells a node whether its view is complete. Unlike
 * `BucketIndex`, it keeps one number for a class, not one for each bucket.
 */
export function classDigest(snapshot: Snapshot, viewClass: ViewClass): bigint {
  return digests(snapshot, viewClass).reduce((sum, digest) => sum ^ digest, 0n);
}

/** Computes the digest of a class that was not requested before in steps, and yields between them. */
export function classDigestInSteps(snapshot: Snapshot, viewClass: ViewClass): Iterable<undefined> {
  return digests.inSteps(snapshot, viewClass);
}
