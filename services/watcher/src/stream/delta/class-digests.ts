import { BucketDigests } from "@kpng/model/wire/item-digest.ts";
import type { Item } from "../../items/item.ts";
import { digestOf, toggleDigests } from "../../items/item-digests.ts";
import { diffSorted } from "../../items/service-items.ts";
import { sharedItemsAt } from "../../items/service-state.ts";
import { proxyNamesIn, type ViewClass } from "../../items/view-target.ts";
import { changedServices, derived } from "../../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";

/**
 * The exclusive or of the digests of all items that a class shares. The digest of a node's view adds those of the
 * node's overlays.
 *
 * *Cost:* the items that changed since the last snapshot for which it was requested; all items, for a new class.
 */
export const classDigest = perClass(() => 0n, toggleDigests);

/** The same for each bucket. *Bound:* 8 KiB for each class. */
export const classBuckets = perClass(
  () => new BucketDigests(),
  (digests, changed) => {
    const next = digests.copy();
    for (const item of changed) next.toggle(digestOf(item));
    return next;
  },
);

/**
 * A value computed from all items that a class shares. `toggle` receives the items that were added, deleted or
 * replaced, and returns the new value; it must not modify the old one.
 *
 * *Bound:* one value for each zone that nodes have had and each proxy name that Services have.
 */
function perClass<T>(
  makeEmpty: () => T,
  toggle: (value: T, items: readonly Item[]) => T,
): (snapshot: Snapshot, viewClass: ViewClass) => T {
  const evolve = (value: T, viewClass: ViewClass, before: Snapshot, snapshot: Snapshot): T => {
    const changed = changedServices(before, snapshot).flatMap((key) => {
      const [old, now] = [sharedItemsAt(before, key, viewClass), sharedItemsAt(snapshot, key, viewClass)];
      const { puts, deletes, replaced } = diffSorted(old.items, now.items);
      return [...puts, ...deletes, ...replaced];
    });
    return changed.length === 0 ? value : toggle(value, changed);
  };
  // Every class that was ever requested follows the snapshots, as long as Services have its proxy name.
  const valuesOf = derived(
    new Map<string, { readonly viewClass: ViewClass; readonly value: T }>(),
    (all, before, snapshot) => {
      const proxyNames = proxyNamesIn(snapshot);
      const kept = [...all].filter(
        ([, { viewClass }]) => viewClass.proxyName === undefined || proxyNames.has(viewClass.proxyName),
      );
      return new Map(
        kept.map(([key, { viewClass, value }]) => [
          key,
          { viewClass, value: evolve(value, viewClass, before, snapshot) },
        ]),
      );
    },
  );
  return (snapshot, viewClass) => {
    const values = valuesOf(snapshot);
    const held = values.get(viewClass.key);
    if (held !== undefined) return held.value;
    const value = evolve(makeEmpty(), viewClass, emptySnapshot, snapshot);
    values.set(viewClass.key, { viewClass, value });
    return value;
  };
}
