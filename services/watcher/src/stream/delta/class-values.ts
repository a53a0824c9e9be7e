import type { Item } from "../../items/item.ts";
import { diffSorted } from "../../items/service-items.ts";
import { serviceAt, serviceStates } from "../../items/service-state.ts";
import { proxyNamesIn, type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { changedServices, derived } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";

/**
 * Returns a function that computes a value from all items that a class of nodes shares. Digests and the bucket index
 * are such values.
 *
 * The value has one or two parts. The first part covers the Services without zone hints, and is the same object for all
 * zones. The second part covers the Services with zone hints; it exists while there are such Services. `change`
 * returns the value after some items were removed and others were added; it must not modify the old value.
 *
 * *Cost:* the Services that changed since the last snapshot for which a value was requested; all Services, for a new
 * class. *Bound:* one part for each proxy name that Services have, and one more for each zone.
 *
 * `bucketIndexes` and `classDigest` are made with it. It is separate from both because they differ only in the value
 * that they keep.
 */
export function perClass<T>(
  makeEmpty: () => T,
  change: (value: T, removed: readonly Item[], added: readonly Item[]) => T,
): (snapshot: Snapshot, viewClass: ViewClass) => readonly T[] {
  const evolve = (value: T, part: Part, before: Snapshot, snapshot: Snapshot): T => {
    const removed: Item[] = [];
    const added: Item[] = [];
    for (const key of changedServices(before, snapshot)) {
      const diff = diffSorted(itemsIn(part, before, key), itemsIn(part, snapshot, key));
      removed.push(...diff.deletes, ...diff.replaced);
      added.push(...diff.puts);
    }
    return removed.length + added.length === 0 ? value : change(value, removed, added);
  };
  // Every part that was ever requested follows the snapshots, as long as Services have its proxy name.
  const partsOf = derived(new Map<string, { readonly part: Part; readonly value: T }>(), (all, before, snapshot) => {
    const proxyNames = proxyNamesIn(snapshot);
    const kept = [...all].filter(
      ([, { part }]) => part.viewClass.proxyName === undefined || proxyNames.has(part.viewClass.proxyName),
    );
    return new Map(kept.map(([key, { part, value }]) => [key, { part, value: evolve(value, part, before, snapshot) }]));
  });
  return (snapshot, viewClass) => {
    const parts = partsOf(snapshot);
    const partValue = (part: Part): T => {
      const key = `${part.hasZoneHints} ${part.viewClass.key}`;
      const held = parts.get(key);
      if (held !== undefined) return held.value;
      const value = evolve(makeEmpty(), part, emptySnapshot, snapshot);
      parts.set(key, { part, value });
      return value;
    };
    const common = partValue({ viewClass: viewClassOf(viewClass, ""), hasZoneHints: false });
    return zoneHintedCount(snapshot) === 0 ? [common] : [common, partValue({ viewClass, hasZoneHints: true })];
  };
}

/** The Services of one class with zone hints, or those without. */
interface Part {
  readonly viewClass: ViewClass;
  readonly hasZoneHints: boolean;
}

function itemsIn({ viewClass, hasZoneHints }: Part, snapshot: Snapshot, key: string): readonly Item[] {
  const state = serviceAt(snapshot, key, viewClass);
  return state?.own.hasZoneHints === hasZoneHints ? state.sharedItems(viewClass).items : [];
}

/** Number of Services that have endpoints with hints for zones. */
const zoneHintedCount = derived(0, (count, before, snapshot) =>
  changedServices(before, snapshot).reduce(
    (sum, key) => sum + Number(hasZoneHints(snapshot, key)) - Number(hasZoneHints(before, key)),
    count,
  ),
);

/**
 * True if the items of a Service may depend on the zone of a node. `snapshotDelta` calls it to decide whether all zones
 * share the encoded changes of a Service.
 */
export function hasZoneHints(snapshot: Snapshot, key: string): boolean {
  return serviceStates(snapshot).get(key)?.own.hasZoneHints === true;
}
