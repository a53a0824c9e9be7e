import { getOrMake } from "@kpng/model/get-or-make.ts";
import { emptySnapshot, type Snapshot } from "../store/snapshot.ts";

/**
 * Something that is made from a snapshot, in proportion to what changed since the snapshot that it was made from last.
 *
 * `evolve` returns what belongs to `snapshot`, given what belongs to `before`, and must not change the latter. Snapshots
 * need not follow each other, nor come from the same store: it costs more, nothing else.
 *
 * *Bound:* kept as long as its snapshot lives.
 */
export function derived<T>(
  empty: T,
  evolve: (value: T, before: Snapshot, snapshot: Snapshot) => T,
): (snapshot: Snapshot) => T {
  const made = new WeakMap<Snapshot, T>();
  let last: WeakRef<Snapshot> | undefined;
  return (snapshot) =>
    getOrMake(made, snapshot, () => {
      const before = last?.deref();
      const value = before && made.get(before);
      last = new WeakRef(snapshot);
      return before === undefined || value === undefined
        ? evolve(empty, emptySnapshot, snapshot)
        : evolve(value, before, snapshot);
    });
}

/** The Services that are not the same in both snapshots, or whose slices are not. Kept as long as both live. */
export function changedServices(before: Snapshot, snapshot: Snapshot): readonly string[] {
  const fromBefore = getOrMake(changed, before, () => new WeakMap<Snapshot, readonly string[]>());
  return getOrMake(fromBefore, snapshot, () => [
    ...new Set([
      ...snapshot.services.changedKeys(before.services),
      ...snapshot.slicesByService.changedKeys(before.slicesByService),
    ]),
  ]);
}

const changed = new WeakMap<Snapshot, WeakMap<Snapshot, readonly string[]>>();
