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
 * The difference between the items of a Service that a class of nodes shares (`ServiceState.sharedItems`) and the items
 * of one node.
 *
 * **The problem.** The bytes of an endpoint depend on the node: on whether the endpoint runs there, and on whether
 * traffic with policy Local may use it. Encoding and compressing a view of 50 000 endpoints takes 3 s, too much for
 * each of 1 000 nodes.
 *
 * **The idea.** A node runs few endpoints of a Service, and usually none. For all other endpoints, it receives the
 * items of its class, which are encoded once and compressed together. The node's own endpoints (see `ClassChoice`) are
 * encoded for that node, and sent after, or in place of, the items of the class. Here, `'` marks the items of n1, and `"`
 * the new item of the class:
 *
 * ```text
 *                    revision 41                     42: web/b fails, and web/c is recreated on n1
 * shared             web    web/a   web/b   web/c    web    web/a           web/c"
 * removed for n1                    web/b                                   web/c"
 * added for n1                      web/b'                                  web/c'
 * node n1            web    web/a   web/b'  web/c    web    web/a           web/c'
 *
 * the class gets     delete web/b, put web/c"
 * n1 gets            delete web/b, put web/c'        deletes name only the path, which b and b' share
 * ```
 *
 * Of 1 000 nodes, 999 receive the bytes of the class. Every batch is composed in this way; `nodeProjection` lists the
 * cases.
 *
 * **Invariants.**
 *
 * 1. `shared` without `removed`, and `added`, are the items of `makeServiceView`.
 * 2. Both lists ascend by path. A path occurs at most once in each list, and in both lists if the node has a different
 *    item at that path.
 * 3. A Service without own endpoints of the node has an empty overlay. {@link ownServices} finds the other Services, so
 *    that the cost of a node depends on its own endpoints, not on all endpoints of the cluster.
 * 4. Overlays are computed when needed and not stored, because the overlays of 1 000 nodes that connect simultaneously
 *    would fill the caches.
 *
 * **Rejected.** *A compressed view per node*: compressing 8 MB of cached items takes 60 to 85 ms of CPU time.
 */
export interface Overlay extends ItemsDiff {
  readonly shared: readonly Item[];
}

const noOverlay: Overlay = { shared: [], ...noDiff };

/**
 * Returns the overlay of each Service with own endpoints of the node, and of the node itself if the view includes it.
 * *Cost:* proportional to the node's own endpoints.
 */
export function overlaysOf(snapshot: Snapshot, target: ViewTarget): readonly Overlay[] {
  const keys = [...ownServices(snapshot, target.node.name)];
  const overlays = keys.map((key) => serviceOverlay(snapshot, key, target));
  return target.request.wantsNode ? [...overlays, nodeOverlay(snapshot, target)] : overlays;
}

/** Returns the overlay with the item of the node itself, for views that include it. */
export function nodeOverlay(snapshot: Snapshot, { node }: ViewTarget): Overlay {
  return { ...noOverlay, added: nodeItems(snapshot, node.name) };
}

/**
 * Returns the overlay of the Service with this key; an empty one if the view does not include it.
 *
 * *Cost:* proportional to the node's own endpoints of the Service, once the items of the class exist.
 */
export function serviceOverlay(snapshot: Snapshot, key: string, target: ViewTarget): Overlay {
  const { node, viewClass } = target;
  const { isExtended } = viewClass;
  const state = serviceAt(snapshot, key, viewClass);
  if (state === undefined) return noOverlay;
  const { ownEndpoints, items: cache } = state;
  const endpoints = ownEndpoints.byNode.get(node.name) ?? [];
  const shared = state.sharedItems(viewClass);
  const { choice, diff } = state.ofClass(viewClass, namedGroupsFor(ownEndpoints, endpoints, node.name));
  const uses = choice.usesOfOwn(endpoints, node.name);
  const removed: Item[] = [];
  const added: Item[] = [];
  // If the node uses one of its own endpoints differently from its class, the node's items replace those of the class.
  for (const [index, one] of endpoints.entries()) {
    const inClass = cache.ofEndpoint(one, choice.usesOf(one), { isExtended, isOnNode: false });
    const variant = { isExtended, isOnNode: isOnNode(one.endpoint, node) };
    const items = cache.ofEndpoint(one, uses[index] ?? [], variant);
    if (items === inClass) continue;
    removed.push(...inClass);
    added.push(...items);
  }
  return { shared, ...compose(diff, { removed, added }, shared) };
}

/** Returns the difference from the shared items that has the effect of `first` followed by `second`. */
function compose(first: ItemsDiff, second: ItemsDiff, shared: readonly Item[]): ItemsDiff {
  if (first === noDiff) return { removed: sortByPath(second.removed), added: sortByPath(second.added) };
  const [firstAdded, secondRemoved] = [new Set(first.added), new Set(second.removed)];
  // `first` omits items that are equal by their bytes, so `shared` may contain another object at the same path.
  const inShared = (item: Item): Item => findItem(shared, item.path) ?? item;
  const removed = second.removed.filter((item) => !firstAdded.has(item)).map(inShared);
  const added = [...first.added.filter((item) => !secondRemoved.has(item)), ...second.added];
  // An item that `first` removes and `second` adds again is a shared item after all.
  const sharedItems = new Set(added.filter((item) => findItem(shared, item.path) === item));
  const isChanged = (item: Item): boolean => !sharedItems.has(item);
  // Usually, the class uses none of the node's own endpoints. `first` may contain all endpoints of a large Service.
  const allRemoved = removed.length === 0 ? first.removed : sortByPath([...first.removed, ...removed]);
  return { removed: allRemoved.filter(isChanged), added: sortByPath(added.filter(isChanged)) };
}

/** Returns the item that the node receives at a path. O(log items). */
export function itemAt({ shared, removed, added }: Overlay, path: string): Item | undefined {
  return findItem(added, path) ?? (findItem(removed, path) === undefined ? findItem(shared, path) : undefined);
}

/** Returns the keys of the Services with own endpoints of the node, for any proxy and in no particular order. */
export function ownServices(snapshot: Snapshot, nodeName: string): ReadonlySet<string> {
  return servicesByNode.at(snapshot).get(nodeName) ?? new Set();
}

/**
 * The keys of the Services by node. *Cost:* proportional to the number of nodes with endpoints of the changed Services.
 */
export const servicesByNode = new Derived(
  ShardedMap.empty<ReadonlySet<string>>(),
  function* (byNode, before, snapshot) {
    const changed = new Map<string, Set<string>>();
    const keysOf = (name: string): Set<string> => getOrMake(changed, name, () => new Set(byNode.get(name)));
    for (const key of changedServices(before, snapshot)) {
      const [old, now] = [before, snapshot].map((one) => serviceStates.at(one).get(key)?.ownEndpoints.byNode);
      for (const name of old?.keys() ?? []) if (!now?.has(name)) keysOf(name).delete(key);
      for (const name of now?.keys() ?? []) if (!old?.has(name)) keysOf(name).add(key);
      yield;
    }
    return byNode.withAll([...changed].map(([name, keys]) => [name, keys.size === 0 ? undefined : keys] as const));
  },
);
