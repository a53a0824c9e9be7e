import { compareText } from "@kpng/model/text-order.ts";
import { deleteFrame, type Frame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import { isSameItem } from "../../items/service-items.ts";
import { type Changes, pause } from "./projection.ts";
import { sortInSteps } from "./sort-in-steps.ts";

/**
 * Returns the changes from `sent` to `wanted`, two lists of items (encoded objects of a view), in the given order.
 * Within a phase, puts ascend by path and deletes descend. An item whose bytes are equal causes no change.
 *
 * Pure; O(sent + wanted).
 *
 * Called by `globalProjection` for relays, and by `nodeProjection` when the zone of a node changes, for few objects.
 * `snapshotDelta` computes the usual changes of node views instead, once for all nodes of a class.
 */
export function diffItems(sent: Iterable<Item>, wanted: Iterable<Item>, order: Order): Changes {
  const frames = [...differingFrames(sent, wanted, order)].filter((frame) => frame !== pause);
  return { isEmpty: frames.length === 0, frames: () => frames };
}

/**
 * Same as {@link diffItems}, computed in steps while the frames are read. For lists as long as the cluster: the whole
 * state for a relay, and a subscriber that requests another view. `isEmpty` is false, because it is not known yet.
 */
export function diffInSteps(sent: Iterable<Item>, wanted: Iterable<Item>, order: Order): Changes {
  return { isEmpty: false, frames: () => differingFrames(sent, wanted, order) };
}

/** Items that one step encodes, compares or sorts: 2 to 5 ms. */
const itemsPerStep = 1_000;

/** Yields {@link pause} between the steps. */
function* differingFrames(sent: Iterable<Item>, wanted: Iterable<Item>, { sections, phases }: Order): Iterable<Frame> {
  let count = 0;
  const gone = new Map<string, Item>();
  for (const item of sent) {
    gone.set(itemKey(item), item);
    count += 1;
    if (count % itemsPerStep === 0) yield pause;
  }
  const puts = new Map<number, Item[]>(sections.map((_, section) => [section, []]));
  for (const item of wanted) {
    const key = itemKey(item);
    const old = gone.get(key);
    gone.delete(key);
    if (old === undefined || !isSameItem(old, item)) puts.get(item.section)?.push(item);
    count += 1;
    if (count % itemsPerStep === 0) yield pause;
  }
  const deletes = Map.groupBy(gone.values(), ({ section }) => section);
  for (const { kind, section } of phases) {
    const items = (kind === "put" ? puts : deletes).get(section) ?? [];
    const sorted = yield* sortInSteps(items, kind === "put" ? byPath : byPathDescending, itemsPerStep, pause);
    for (const { path, frame } of sorted) yield kind === "put" ? frame : deleteFrame(sections[section] ?? 0, path);
  }
}

function itemKey(item: Item): string {
  return `${item.section} ${item.path}`;
}

function byPath(a: Item, b: Item): number {
  return compareText(a.path, b.path);
}

function byPathDescending(a: Item, b: Item): number {
  return compareText(b.path, a.path);
}
