import { type ItemDigest, itemDigest } from "@kpng/model/wire/item-digest.ts";
import { valueIn } from "./frames.ts";
import type { Item } from "./item.ts";
import { nodeViewOrder } from "./node-view-items.ts";

/** What stands for an item of a node's view in digests. Kept as long as the item lives. */
export function digestOf(item: Item): ItemDigest {
  item.digest ??= freshDigestOf(item);
  return item.digest;
}

/** The same, for an item that nobody will ask about again. */
export function freshDigestOf({ section, path, frame }: Item): ItemDigest {
  return itemDigest(nodeViewOrder.sections[section] ?? 0, path, valueIn(frame));
}
