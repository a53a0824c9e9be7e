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
  let last: { readonly snapshot: Snapshot; readonly value: T } = { snapshot: emptySnapshot, value: empty };
  return (snapshot) => {
    if (snapshot === last.snapshot) return last.value;
    const value = getOrMake(made, snapshot, () => evolve(last.value, last.snapshot, snapshot));
    last = { snapshot, value };
    return value;
  };
}

/**
 * Something that is made from what lies between two snapshots. Subscribers that keep up all go from the same one to the
 * same next one, so that pair is found at once. `context` is read by the one who asks first.
 *
 * *Bound:* kept as long as both snapshots live; the pair that was asked for last, until there is another.
 */
export function between<T, C = void>(
  make: (before: Snapshot, snapshot: Snapshot, context: C) => T,
): (before: Snapshot, snapshot: Snapshot, context: C) => T {
  const made = new WeakMap<Snapshot, WeakMap<Snapshot, T>>();
  let last: { readonly before: Snapshot; readonly snapshot: Snapshot; readonly value: T } | undefined;
  return (before, snapshot, context) => {
    if (last !== undefined && last.before === before && last.snapshot === snapshot) return last.value;
    const fromBefore = getOrMake(made, before, () => new WeakMap<Snapshot, T>());
    const value = getOrMake(fromBefore, snapshot, () => make(before, snapshot, context));
    last = { before, snapshot, value };
    return value;
  };
}

/** The Services that are not the same in both snapshots, or whose slices are not. Kept as long as both live. */
export const changedServices = between((before, snapshot): readonly string[] => [
  ...new Set([
    ...snapshot.services.changedKeys(before.services),
    ...snapshot.slicesByService.changedKeys(before.slicesByService),
  ]),
]);
