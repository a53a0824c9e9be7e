import { compareText } from "@kpng/model/text-order.ts";
import { deleteFrame, type Frame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import type { Changes } from "./projection.ts";

/**
 * Returns the changes from `sent` to `wanted`, two lists of items (encoded objects of a view), in the given order.
 * Within a phase, puts ascend by path and deletes descend. An item whose bytes are equal causes no change.
 *
 * Pure; O(sent + wanted).
 *
 * Called by `globalProjection` for relays, by `nodeProjection` when the zone of a node changes, by `resumeView`, and by
 * `Subscription` when a subscriber requests another view; separate, because all four need it. `snapshotDelta` computes
 * the usual changes of node views instead, once for all nodes of a class.
 */
export function diffItems(sent: Iterable<Item>, wanted: Iterable<Item>, { sections, phases }: Order): Changes {
  const gone = new Map<string, Item>();
  for (const item of sent) gone.set(itemKey(item), item);
  const puts: Item[] = [];
  for (const item of wanted) {
    const key = itemKey(item);
    const old = gone.get(key);
    gone.delete(key);
    if (old === undefined || (old !== item && Buffer.compare(old.frame, item.frame) !== 0)) puts.push(item);
  }
  puts.sort(byPath);
  const deletes = [...gone.values()].sort(byPath).reverse();
  const frames = phases.flatMap(({ kind, section }): Frame[] =>
    kind === "put"
      ? puts.filter((item) => item.section === section).map((item) => item.frame)
      : deletes.filter((item) => item.section === section).map(({ path }) => deleteFrame(sections[section] ?? 0, path)),
  );
  return { isEmpty: frames.length === 0, frames: () => frames };
}

function itemKey(item: Item): string {
  return `${item.section} ${item.path}`;
}

function byPath(a: Item, b: Item): number {
  return compareText(a.path, b.path);
}
