import { type ItemDigest, itemDigest } from "@kpng/model/wire/item-digest.ts";
import { valueIn } from "./frames.ts";
import { getOrMake } from "./get-or-make.ts";
import { localOrder } from "./local-units.ts";
import type { Item } from "./projection.ts";

const digests = new WeakMap<Item, ItemDigest>();

/** What stands for an item of a node's view in digests. Kept as long as the item lives. */
export function digestOf(item: Item): ItemDigest {
  return getOrMake(digests, item, () =>
    itemDigest(localOrder.sections[item.section] ?? 0, item.path, valueIn(item.frame)),
  );
}
