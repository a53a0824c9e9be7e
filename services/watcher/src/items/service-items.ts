import { lowerBound } from "@kpng/model/binary-search.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { Item } from "./item.ts";
import { digestOf } from "./item-digests.ts";

/** Items of one Service. */
export interface ServiceItems {
  /** Ascending by path, each path once. */
  readonly items: readonly Item[];
  /** True if several endpoints had the same path, of which one is here. */
  readonly hasClashes: boolean;
  /** The exclusive or of the digests of the items, once somebody has asked; see serviceItemsDigest. */
  digest: bigint | undefined;
}

export const noServiceItems: ServiceItems = { items: [], hasClashes: false, digest: 0n };

/** Of several items with the same path the last one holds. */
export function makeServiceItems(items: readonly Item[]): ServiceItems {
  const sorted = items.toSorted((a, b) => compareText(a.path, b.path));
  const kept = sorted.filter((item, index) => item.path !== sorted[index + 1]?.path);
  return { items: kept, hasClashes: kept.length < sorted.length, digest: undefined };
}

/** Returns the item at a path. O(log items). */
export function findItem({ items }: ServiceItems, path: string): Item | undefined {
  const found = items[lowerBound(items.length, (index) => (items[index]?.path ?? "") < path)];
  return found?.path === path ? found : undefined;
}

/** What leads from one unit to another; all ascending by path. */
export interface ItemsDiff {
  /** New, or of other bytes. */
  readonly puts: readonly Item[];
  readonly deletes: readonly Item[];
  /** The old items of those puts that are not new. */
  readonly replaced: readonly Item[];
}

/**
 * Returns what leads from `before` to `after`. An item that moves to another section is deleted and put.
 *
 * *Cost:* O(before + after), and little for items that are the same objects.
 */
export function diffServiceItems(before: ServiceItems, after: ServiceItems): ItemsDiff {
  return before === after ? noDiff : makeDiff(before.items, after.items);
}

const noDiff: ItemsDiff = { puts: [], deletes: [], replaced: [] };

function makeDiff(before: readonly Item[], after: readonly Item[]): ItemsDiff {
  const puts: Item[] = [];
  const deletes: Item[] = [];
  const replaced: Item[] = [];
  let [left, right] = [0, 0];
  for (;;) {
    const [old, item] = [before[left], after[right]];
    if (old === undefined && item === undefined) return { puts, deletes, replaced };
    if (item === undefined || (old !== undefined && old.path < item.path)) {
      if (old !== undefined) deletes.push(old);
      left += 1;
    } else if (old === undefined || item.path < old.path) {
      puts.push(item);
      right += 1;
    } else {
      if (old.section !== item.section) {
        deletes.push(old);
        puts.push(item);
      } else if (!isSameItem(old, item)) {
        replaced.push(old);
        puts.push(item);
      }
      left += 1;
      right += 1;
    }
  }
}

/** True for items of the same path and section that need not be sent again. */
export function isSameItem(a: Item, b: Item): boolean {
  return a === b || Buffer.compare(a.frame, b.frame) === 0;
}

/** The exclusive or of the digests of the items. O(items) the first time. */
export function serviceItemsDigest(unit: ServiceItems): bigint {
  unit.digest ??= xorOfDigests(unit.items);
  return unit.digest;
}

export function xorOfDigests(items: readonly Item[]): bigint {
  let digest = 0n;
  for (const item of items) digest ^= digestOf(item).hash;
  return digest;
}
