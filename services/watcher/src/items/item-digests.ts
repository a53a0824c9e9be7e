import { type ItemDigest, itemDigest } from "@kpng/model/wire/item-digest.ts";
import { valueIn } from "./frames.ts";
import type { Item } from "./item.ts";
import { nodeViewOrder } from "./node-view-items.ts";

/**
 * Returns the digest of an item of a node view, and caches it in the item. `stream/delta` calls the functions of this
 * file: a subscriber that resumes sends digests of its items, and a sync marker contains the digest of the view.
 * Separate from `item.ts`, because relays have items without digests.
 */
export function digestOf(item: Item): ItemDigest {
  item.digest ??= uncachedDigestOf(item);
  return item.digest;
}

/** Same as {@link digestOf}, without the cache: for an item that is used once. */
export function uncachedDigestOf({ section, path, frame }: Item): ItemDigest {
  return itemDigest(nodeViewOrder.sections[section] ?? 0, path, valueIn(frame));
}

/** Returns the exclusive or of `digest` and the digests of the items: adds items to the digest, or removes them. */
export function toggleDigests(digest: bigint, items: readonly Item[], digestOfItem = digestOf): bigint {
  return items.reduce((sum, item) => sum ^ digestOfItem(item).hash, digest);
}
