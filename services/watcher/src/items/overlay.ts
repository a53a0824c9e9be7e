import { getOrMake } from "@kpng/model/collections.ts";
import { changedServices, Derived } from "../store/derived.ts";
import { ShardedMap } from "../store/sharded-map.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { isOnNode } from "../view/choose-endpoints.ts";
import { namedGroupsFor } from "../view/class-choice.ts";
import { type Item, nodeItems } from "./item.ts";
import { findItem, type ItemsDiff, noDiff, sortByPath } from "./service-items.ts";
import { serviceAt, serviceStates } from "./service-state.ts";
import type { ViewTarget } from "./view-target.ts";

/**
 * The difference between the items of one Service that all subscribers of a view class share, and those of one node.
 *
 * The node receives `shared` without `removed`, and `added`. A Service without endpoints of the node's own has an empty
 * overlay. Overlays are computed on demand and not kept.
 */
export interface Overlay extends ItemsDiff {
  readonly shared: readonly Item[];
}

const noOverlay: Overlay = { shared: [], ...noDiff };

/**
 * Returns the overlay of each Service that has endpoints of the node's own, and of the node itself if the view includes
 * it. Keeps nothing: a thousand nodes that connect at once would leave their items in the caches.
 *
 * *Cost:* the node's own endpoints.
 */
export function overlaysOf(snapshot: Snapshot, target: ViewTarget): readonly Overlay[] {
  const keys = [...ownServices(snapshot, target.node.name)];
  const overlays = keys.map((key) => serviceOverlay(snapshot, key, target, false));
  return target.request.wantsNode ? [...overlays, nodeOverlay(snapshot, target)] : overlays;
}

/** Returns the overlay that consists of the item of the node itself, for views that include it. */
export function nodeOverlay(snapshot: Snapshot, { node }: ViewTarget): Overlay {
  return { ...noOverlay, added: nodeItems(snapshot, node.name) };
}

/**
 * Returns the overlay of the Service with this key; an empty one if the view does not include it. With `isKept` false,
 * the caller must not keep the items; see setFrame.
 *
 * *Cost:* the node's own endpoints of the Service, once the items of the class exist.
 */
export function serviceOverlay(snapshot: Snapshot, key: string, target: ViewTarget, isKept: boolean): Overlay {
  const { node, viewClass } = target;
  const { isExtended } = viewClass;
  const state = serviceAt(snapshot, key, viewClass);
  if (state === undefined) return noOverlay;
  const { own, items: cache } = state;
  const endpoints = own.byNode.get(node.name) ?? [];
  const shared = state.sharedItems(viewClass);
  const { choice, diff } = state.ofClass(viewClass, namedGroupsFor(own, endpoints, node.name));
  const uses = choice.usesOfOwn(endpoints, node.name);
  const removed: Item[] = [];
  const added: Item[] = [];
  // An own endpoint that the node uses unlike its class has other items, which replace those of the class.
  for (const [index, one] of endpoints.entries()) {
    const inClass = cache.ofEndpoint(one, choice.usesOf(one), { isExtended, isOnNode: false });
    const items = cache.ofEndpoint(
      one,
      uses[index] ?? [],
      { isExtended, isOnNode: isOnNode(one.endpoint, node) },
      isKept,
    );
    if (items === inClass) continue;
    removed.push(...inClass);
    added.push(...items);
  }
  return { shared, ...compose(diff, { removed, added }, shared) };
}

/** Returns the difference to the shared items that has the effect of `first`, followed by `second`. */
function compose(first: ItemsDiff, second: ItemsDiff, shared: readonly Item[]): ItemsDiff {
  if (first === noDiff) return { removed: sortByPath(second.removed), added: sortByPath(second.added) };
  const [firstAdded, secondRemoved] = [new Set(first.added), new Set(second.removed)];
  const removed = second.removed.filter((item) => !firstAdded.has(item));
  const added = [...first.added.filter((item) => !secondRemoved.has(item)), ...second.added];
  // An item that `first` removes and `second` adds again is shared after all.
  const restored = new Set(added.filter((item) => findItem(shared, item.path) === item));
  const isChanged = (item: Item): boolean => !restored.has(item);
  return {
    removed: sortByPath([...first.removed, ...removed].filter(isChanged)),
    added: sortByPath(added.filter(isChanged)),
  };
}

/** Returns the item that the node receives at a path. O(log items). */
export function itemAt({ shared, removed, added }: Overlay, path: string): Item | undefined {
  return findItem(added, path) ?? (findItem(removed, path) === undefined ? findItem(shared, path) : undefined);
}

/**
 * Returns the keys of the Services that have endpoints of the node's own, for any proxy and in no particular order.
 * With this index, a new subscriber costs its own endpoints and not all Services.
 */
export function ownServices(snapshot: Snapshot, nodeName: string): ReadonlySet<string> {
  return keysByNode.at(snapshot).get(nodeName) ?? new Set();
}

/** The keys of the Services by node. *Cost:* the nodes with endpoints of the Services that changed. */
const keysByNode = new Derived(ShardedMap.empty<ReadonlySet<string>>(), (byNode, before, snapshot) => {
  const next = new Map<string, Set<string>>();
  const edit = (name: string): Set<string> => getOrMake(next, name, () => new Set(byNode.get(name)));
  for (const key of changedServices(before, snapshot)) {
    const [old, now] = [before, snapshot].map((one) => serviceStates.at(one).get(key)?.own.byNode);
    for (const name of old?.keys() ?? []) if (!now?.has(name)) edit(name).delete(key);
    for (const name of now?.keys() ?? []) if (!old?.has(name)) edit(name).add(key);
  }
  return byNode.withAll([...next].map(([name, keys]) => [name, keys.size === 0 ? undefined : keys] as const));
});
