import { getOrMake } from "@kpng/model/get-or-make.ts";
import { type ItemDigest, itemDigest } from "@kpng/model/wire/item-digest.ts";
import { valueIn } from "./frames.ts";
import { localOrder } from "./local-units.ts";
import type { Item } from "./projection.ts";

const digests = new WeakMap<Item, ItemDigest>();

/** What stands for an item of a node's view in digests. Kept as long as the item lives. */
export function digestOf(item: Item): ItemDigest {
  return getOrMake(digests, item, () => freshDigestOf(item));
}

/** The same, for an item that nobody will ask about again. */
export function freshDigestOf({ section, path, frame }: Item): ItemDigest {
  return itemDigest(localOrder.sections[section] ?? 0, path, valueIn(frame));
}
