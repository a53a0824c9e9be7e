import { getOrMake } from "@kpng/model/get-or-make.ts";
import { emptySnapshot, type Snapshot } from "./snapshot.ts";

// Not in WeakMaps: whatever is in one counts as alive until V8 looks through the whole heap, which is seldom; what is made
// for each change would all be moved to the old generation, and be what makes that necessary.

const derivedValues = Symbol("derived values");

/** What was made of a snapshot, by whoever made it. Kept as long as the snapshot. */
function valuesOf(snapshot: Snapshot & { [derivedValues]?: Map<unknown, unknown> }): Map<unknown, unknown> {
  const held = snapshot[derivedValues];
  if (held !== undefined) return held;
  const values = new Map<unknown, unknown>();
  // Not enumerable: what is made from this snapshot by changing a part of it has values of its own.
  Object.defineProperty(snapshot, derivedValues, { value: values });
  return values;
}

/**
 * Something that is made from a snapshot, in proportion to what changed since the snapshot that it was made from last.
 *
 * `evolve` returns what belongs to `snapshot`, given what belongs to `before`, and must not change the latter, nor hold on
 * to either snapshot. Snapshots need not follow each other, nor come from the same store: it costs more, nothing else.
 *
 * *Bound:* kept as long as its snapshot lives, and with the newest one.
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
    // One that lags behind asks for what was: the next snapshot still follows the newest.
    if (snapshot.revision >= last.snapshot.revision) last = { snapshot, value };
    return value;
  };
}

/** To how many snapshots the ways are kept: nearly all go to the newest one, and some are not done yet with one before. */
const keptTargets = 4;

/** How many ways to each: those who keep up go the same one, and who lags far behind goes one of its own. */
const keptWays = 16;

/**
 * Something that is made from what lies between two snapshots. Subscribers that keep up all go from the same one to the
 * same next one, so that pair is found at once. `context` is read by the one who asks first.
 *
 * *Bound:* the last {@link keptWays} to each of the last {@link keptTargets} snapshots to which somebody went, and the
 * snapshots at both ends.
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
      targets = [target, ...targets.slice(0, keptTargets - 1)];
    }
    const { byBefore } = target;
    const value = getOrMake(byBefore, before, () => make(before, snapshot, context));
    if (byBefore.size > keptWays) {
      const [oldest] = byBefore.keys();
      if (oldest !== undefined) byBefore.delete(oldest);
    }
    last = { before, snapshot, value };
    return value;
  };
}

/** The Services that are not the same in both snapshots, or whose slices are not. */
export const changedServices = between((before, snapshot): readonly string[] => [
  ...new Set([
    ...snapshot.services.changedKeys(before.services),
    ...snapshot.slicesByService.changedKeys(before.slicesByService),
  ]),
]);
