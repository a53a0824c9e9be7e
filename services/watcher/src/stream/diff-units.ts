import { compareText } from "@kpng/model/text-order.ts";
import type { Item, Phase, Units } from "./projection.ts";

/** One step of a batch. */
export type ItemChange =
  | { readonly kind: "put"; readonly item: Item }
  | { readonly kind: "delete"; readonly section: number; readonly path: string };

/**
 * Returns the changes that lead from `sent` to `wanted`, in the order of `phases`; within a phase puts ascend by path
 * and deletes descend.
 *
 * A path that leaves one unit and appears in another in the same step is a put, or nothing if its bytes are the same.
 *
 * Pure; O(units + items of the units that differ).
 */
export function diffUnits(sent: Units, wanted: Units, phases: readonly Phase[]): ItemChange[] {
  const puts = new Map<string, Item>();
  const gone = new Map<string, Item>();
  for (const [key, unit] of sent) {
    if (wanted.get(key) !== unit) for (const item of unit.items) gone.set(itemKey(item), item);
  }
  for (const [key, unit] of wanted) {
    if (sent.get(key) === unit) continue;
    for (const item of unit.items) {
      const id = itemKey(item);
      const old = gone.get(id);
      gone.delete(id);
      if (old === undefined || Buffer.compare(old.bytes, item.bytes) !== 0) puts.set(id, item);
    }
  }
  return phases.flatMap((phase): ItemChange[] => {
    const inPhase = (item: Item): boolean => item.section === phase.section;
    return phase.kind === "put"
      ? [...puts.values()]
          .filter(inPhase)
          .sort(byPath)
          .map((item) => ({ kind: "put", item }))
      : [...gone.values()]
          .filter(inPhase)
          .sort(byPath)
          .reverse()
          .map(({ section, path }) => ({ kind: "delete", section, path }));
  });
}

function itemKey(item: Item): string {
  return `${item.section} ${item.path}`;
}

function byPath(a: Item, b: Item): number {
  return compareText(a.path, b.path);
}
