import { compareText, lowerBound } from "@kpng/model/collections.ts";
import type { Item } from "./item.ts";

export function sortByPath(items: readonly Item[]): readonly Item[] {
  return items.length < 2 ? items : items.toSorted((a, b) => compareText(a.path, b.path));
}

/**
 * Returns the items without `removed` and with `added`; an item in both lists stays.
 *
 * *Cost:* O(items) without comparisons, plus a search for each added item.
 */
export function editItems(items: readonly Item[], removed: readonly Item[], added: readonly Item[]): readonly Item[] {
  const removedItems = new Set(removed);
  const newItems = sortByPath(added.filter((item) => !removedItems.delete(item)));
  const oldItems = removedItems.size === 0 ? items : items.filter((item) => !removedItems.has(item));
  const merged: Item[] = [];
  let from = 0;
  for (const item of newItems) {
    const to = lowerBound(oldItems.length, (index) => (oldItems[index]?.path ?? "") < item.path);
    for (; from < to; from += 1) merged.push(oldItems[from] as Item);
    merged.push(item);
  }
  return newItems.length === 0 ? oldItems : [...merged, ...oldItems.slice(from)];
}

/** Returns the item at a path. `items` ascend by path. O(log items). */
export function findItem(items: readonly Item[], path: string): Item | undefined {
  const item = items[lowerBound(items.length, (index) => (items[index]?.path ?? "") < path)];
  return item?.path === path ? item : undefined;
}

/** The difference between two lists of items. Both fields ascend by path; a replaced item occurs in both. */
export interface ItemsDiff {
  readonly removed: readonly Item[];
  readonly added: readonly Item[];
}

export const noDiff: ItemsDiff = { removed: [], added: [] };

/**
 * Returns the difference between two lists that ascend by path. An item with other bytes, or in another section, is
 * removed and added.
 *
 * *Cost:* O(before + after); an item that is the same object in both costs one comparison.
 */
export function diffItems(before: readonly Item[], after: readonly Item[]): ItemsDiff {
  if (before === after) return noDiff;
  const removed: Item[] = [];
  const added: Item[] = [];
  let [left, right] = [0, 0];
  for (;;) {
    const [old, item] = [before[left], after[right]];
    if (old === item) {
      if (old === undefined) return { removed, added };
      left += 1;
      right += 1;
    } else if (item === undefined || (old !== undefined && old.path < item.path)) {
      if (old !== undefined) removed.push(old);
      left += 1;
    } else if (old === undefined || item.path < old.path) {
      added.push(item);
      right += 1;
    } else {
      if (old.section !== item.section || !isSameItem(old, item)) {
        removed.push(old);
        added.push(item);
      }
      left += 1;
      right += 1;
    }
  }
}

/** Returns the removed items that need a delete; a put replaces the others. */
export function deletedItems({ removed, added }: ItemsDiff): readonly Item[] {
  return removed.filter((item) => findItem(added, item.path)?.section !== item.section);
}

/** True if two items with the same path and section are equal, so that a subscriber needs only one of them. */
export function isSameItem(a: Item, b: Item): boolean {
  return a === b || Buffer.compare(a.frame, b.frame) === 0;
}
