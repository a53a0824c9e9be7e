import { getOrMake } from "@kpng/model/collections.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";

/**
 * Returns a function that derives a value from a snapshot incrementally, and remembers it with the snapshot. Items,
 * digests and changes are derived in this way, so that a revision costs only what it changed.
 *
 * `evolve` returns the value of `snapshot`, given the value of an earlier one, which it must not change. It may keep a
 * reference to the snapshot with the highest revision, as this function does, and to no other. If the snapshots are not
 * consecutive or not from one store, only the cost is higher.
 *
 * *Bound:* a value lives as long as its snapshot; the newest one is also kept here.
 */
export function derived<T>(
  empty: T,
  evolve: (value: T, before: Snapshot, snapshot: Snapshot) => T,
): (snapshot: Snapshot) => T {
  let last: { readonly snapshot: Snapshot; readonly value: T } = { snapshot: emptySnapshot, value: empty };
  return (snapshot) => {
    if (snapshot === last.snapshot) return last.value;
    if (snapshot === emptySnapshot) return empty;
    const values = valuesOf(snapshot) as Map<typeof evolve, T>;
    const value = getOrMake(values, evolve, () => evolve(last.value, last.snapshot, snapshot));
    // A request for an older snapshot must not replace the newest one as the base of the next.
    if (snapshot.revision >= last.snapshot.revision) last = { snapshot, value };
    return value;
  };
}

// Derived values are properties of their snapshot and not in a WeakMap: V8 frees entries of a WeakMap only in a full
// collection. The values made for each change would fill the old generation and make such collections frequent.

const derivedValues = Symbol("derived values");

/** Returns the values that {@link derived} functions made from a snapshot. They live as long as the snapshot. */
function valuesOf(snapshot: Snapshot & { [derivedValues]?: Map<unknown, unknown> }): Map<unknown, unknown> {
  const existing = snapshot[derivedValues];
  if (existing !== undefined) return existing;
  const values = new Map<unknown, unknown>();
  // Not enumerable, so that a copy of the snapshot with changes does not inherit the values.
  Object.defineProperty(snapshot, derivedValues, { value: values });
  return values;
}

/**
 * Number of target snapshots for which {@link between} keeps values: the newest, and a few that slower subscribers
 * need.
 */
const maxTargets = 4;

/** Number of start snapshots per target: all subscribers that keep up share one, and each one that lags has its own. */
const maxStarts = 16;

/**
 * Returns a function that makes a value from a pair of snapshots and remembers it. Subscribers that keep up share the
 * same pair, which is looked up first. `context` is used only when the value is made.
 *
 * *Bound:* {@link maxTargets} × {@link maxStarts} values, and the snapshots of their pairs.
 */
export function between<T, C = void>(
  make: (before: Snapshot, snapshot: Snapshot, context: C) => T,
): (before: Snapshot, snapshot: Snapshot, context: C) => T {
  let targets: readonly { readonly snapshot: Snapshot; readonly byBefore: Map<Snapshot, T> }[] = [];
  let last: { readonly before: Snapshot; readonly snapshot: Snapshot; readonly value: T } | undefined;
  return (before, snapshot, context) => {
    if (last !== undefined && last.before === before && last.snapshot === snapshot) return last.value;
    let target = targets.find((one) => one.snapshot === snapshot);
    if (target === undefined) {
      target = { snapshot, byBefore: new Map() };
      targets = [target, ...targets.slice(0, maxTargets - 1)];
    }
    const { byBefore } = target;
    const value = getOrMake(byBefore, before, () => make(before, snapshot, context));
    if (byBefore.size > maxStarts) {
      const [oldest] = byBefore.keys();
      if (oldest !== undefined) byBefore.delete(oldest);
    }
    last = { before, snapshot, value };
    return value;
  };
}

/**
 * Returns the keys of the Services that differ between two snapshots, or whose slices differ. Everything that is
 * derived Service by Service starts with it.
 */
export const changedServices = between((before, snapshot): readonly string[] => [
  ...new Set([
    ...snapshot.services.changedKeys(before.services),
    ...snapshot.slicesByService.changedKeys(before.slicesByService),
  ]),
]);
