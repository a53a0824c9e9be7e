import { compareText } from "@kpng/model/text-order.ts";
import type { Item, Phase } from "./projection.ts";

/** One step of a batch. */
export type ItemChange =
  | { readonly kind: "put"; readonly item: Item }
  | { readonly kind: "delete"; readonly section: number; readonly path: string };

/**
 * Returns the changes that lead from `sent` to `wanted`, in the order of `phases`; within a phase puts ascend by path
 * and deletes descend. An item whose bytes are the same makes no change.
 *
 * Pure; O(sent + wanted).
 */
export function diffItems(
  sent: readonly Item[],
  wanted: readonly Item[],
  phases: readonly Phase[],
): readonly ItemChange[] {
  const gone = new Map(sent.map((item) => [itemKey(item), item]));
  const puts: Item[] = [];
  for (const item of wanted) {
    const key = itemKey(item);
    const old = gone.get(key);
    gone.delete(key);
    if (old === undefined || Buffer.compare(old.bytes, item.bytes) !== 0) puts.push(item);
  }
  puts.sort(byPath);
  const deletes = [...gone.values()].sort(byPath).reverse();
  return phases.flatMap(({ kind, section }): ItemChange[] =>
    kind === "put"
      ? puts.filter((item) => item.section === section).map((item) => ({ kind, item }))
      : deletes.filter((item) => item.section === section).map(({ path }) => ({ kind, section, path })),
  );
}

function itemKey(item: Item): string {
  return `${item.section} ${item.path}`;
}

function byPath(a: Item, b: Item): number {
  return compareText(a.path, b.path);
}
