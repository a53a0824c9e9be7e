import type { Item } from "../../items/item.ts";
import { diffSorted } from "../../items/service-items.ts";
import { serviceAt, serviceStates } from "../../items/service-state.ts";
import { proxyNamesIn, type ViewClass, viewClassOf } from "../../items/view-target.ts";
import { changedServices, derived } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import { encodeInSteps } from "./encode-in-steps.ts";

/**
 * Returns a function that computes a value from all items (encoded Services and endpoints) that a class of nodes
 * shares.
 *
 * The value has one or two parts. The first part covers the Services without zone hints, and is the same object for all
 * zones. The second part covers the Services with zone hints; it exists while there are such Services. `change` returns
 * the value after some items were removed and others were added; it must not modify the old value.
 *
 * *Cost:* the Services that changed since the last snapshot for which a value was requested; all Services, for a new
 * class. *Bound:* one part for each proxy name that Services have, and one more for each zone of a node.
 *
 * `bucketIndexes` and `classDigest` are made with it. It is separate from both because they differ only in the value
 * that they keep.
 */
export function perClass<T>(
  makeEmpty: () => T,
  change: (value: T, removed: readonly Item[], added: readonly Item[]) => T,
): ClassValues<T> {
  // The snapshot with the highest revision, which `derived` keeps, too.
  let newest = emptySnapshot;
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
  // Every part that was ever requested follows the snapshots, as long as Services have its proxy name and nodes have
  // its zone.
  const partsOf = derived(new Map<string, { readonly part: Part; readonly value: T }>(), (all, before, snapshot) => {
    if (snapshot.revision >= newest.revision) newest = snapshot;
    const proxyNames = proxyNamesIn(snapshot);
    const zones = zonesIn(snapshot);
    const kept = [...all].filter(
      ([
        ,
        {
          part: { viewClass, hasZoneHints },
        },
      ]) => {
        const { proxyName, zone } = viewClass;
        return (proxyName === undefined || proxyNames.has(proxyName)) && (!hasZoneHints || zones.has(zone));
      },
    );
    return new Map(kept.map(([key, { part, value }]) => [key, { part, value: evolve(value, part, before, snapshot) }]));
  });
  const partValue = (part: Part, snapshot: Snapshot): T => {
    const parts = partsOf(snapshot);
    const held = parts.get(keyOf(part));
    if (held !== undefined) return held.value;
    const value = evolve(makeEmpty(), part, emptySnapshot, snapshot);
    parts.set(keyOf(part), { part, value });
    return value;
  };
  const values = (snapshot: Snapshot, viewClass: ViewClass): readonly T[] => {
    return neededParts(snapshot, viewClass).map((part) => partValue(part, snapshot));
  };
  function* inSteps(snapshot: Snapshot, viewClass: ViewClass): Iterable<undefined> {
    for (const part of neededParts(snapshot, viewClass)) {
      if (partsOf(snapshot).has(keyOf(part))) continue;
      yield* encodeInSteps(serviceStates(snapshot).values(), part.viewClass);
      let value = makeEmpty();
      let items: Item[] = [];
      for (const key of snapshot.services.keys()) {
        items.push(...itemsIn(part, snapshot, key));
        if (items.length < itemsPerStep) continue;
        value = change(value, [], items);
        items = [];
        yield undefined;
      }
      value = change(value, [], items);
      partsOf(snapshot).set(keyOf(part), { part, value });
      // A later snapshot whose values were derived meanwhile does not have the part.
      const later = partsOf(newest);
      if (newest.revision > snapshot.revision && !later.has(keyOf(part))) {
        later.set(keyOf(part), { part, value: evolve(value, part, snapshot, newest) });
      }
    }
  }
  return Object.assign(values, { inSteps });
}

/** The function that {@link perClass} returns; exported because the declarations of the package name it. */
export interface ClassValues<T> {
  (snapshot: Snapshot, viewClass: ViewClass): readonly T[];
  /** Computes in steps the values of a class that were not requested before, and yields between the steps. */
  inSteps(snapshot: Snapshot, viewClass: ViewClass): Iterable<undefined>;
}

/** Items that one step adds to a value: about 5 ms. */
const itemsPerStep = 2_000;

function neededParts(snapshot: Snapshot, viewClass: ViewClass): readonly Part[] {
  const common = { viewClass: viewClassOf(viewClass, ""), hasZoneHints: false };
  return zoneHintedCount(snapshot) === 0 ? [common] : [common, { viewClass, hasZoneHints: true }];
}

function keyOf({ viewClass, hasZoneHints }: Part): string {
  return `${hasZoneHints} ${viewClass.key}`;
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

/** The zones of all nodes, and of those that are not in the cluster. *Cost:* one pass whenever a node changes. */
const zonesIn = derived<ReadonlySet<string>>(new Set([""]), (zones, before, { nodes }) =>
  nodes === before.nodes ? zones : new Set(["", ...[...nodes.values()].map(({ zone }) => zone)]),
);

/** Number of Services that have endpoints with hints for zones. */
const zoneHintedCount = derived(0, (count, before, snapshot) =>
  changedServices(before, snapshot).reduce(
    (sum, key) => sum + Number(hasZoneHints(snapshot, key)) - Number(hasZoneHints(before, key)),
    count,
  ),
);

/**
 * Returns the zones whose views differ: those of all nodes if any endpoint has hints for zones, otherwise only "".
 * `prepareViews` computes the views of each.
 */
export function zonesOfViews(snapshot: Snapshot): readonly string[] {
  if (zoneHintedCount(snapshot) === 0) return [""];
  return [...new Set([...snapshot.nodes.values()].map(({ zone }) => zone))];
}

/**
 * True if the items of a Service may depend on the zone of a node. `snapshotDelta` calls it to decide whether all zones
 * share the encoded changes of a Service.
 */
export function hasZoneHints(snapshot: Snapshot, key: string): boolean {
  return serviceStates(snapshot).get(key)?.own.hasZoneHints === true;
}
