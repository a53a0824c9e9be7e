import type { Snapshot } from "../store/snapshot.ts";
import { isOnNode } from "../view/choose-endpoints.ts";
import { namedGroupsFor } from "../view/class-choice.ts";
import type { MergedEndpoint } from "../view/merge-slices.ts";
import type { Item } from "./item.ts";
import { nodeItems } from "./node-view-items.ts";
import { ownServices } from "./own-services.ts";
import {
  type Edits,
  editsBetween,
  findItem,
  makeServiceItems,
  noEdits,
  noServiceItems,
  type ServiceItems,
  sortByPath,
} from "./service-items.ts";
import { serviceAt } from "./service-state.ts";
import type { ViewTarget } from "./view-target.ts";

/**
 * The difference between the items of one Service that all subscribers of a view class share, and those of one node.
 *
 * The node receives `shared` without `hidden`, and `own`. If a path occurs in both `own` and `shared`, the shared item
 * is hidden. A Service without endpoints of the node's own has an empty overlay.
 *
 * `stream/delta` requests the overlays of a node for each batch. Separate from `ServiceState`, which holds what a class
 * shares: overlays are computed on demand and not kept.
 */
export interface Overlay extends Edits {
  readonly shared: ServiceItems;
}

const noOverlay: Overlay = { shared: noServiceItems, ...noEdits };

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
  return { ...noOverlay, own: nodeItems(snapshot, node.name) };
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
  const { own: ownEndpoints, items: cache } = state;
  const endpoints = ownEndpoints.byNode.get(node.name) ?? [];
  const shared = state.sharedItems(viewClass);
  const classItems = state.ofClass(viewClass, namedGroupsFor(ownEndpoints, endpoints, node.name));
  const { items: base, choice } = classItems;
  const uses = choice.usesOfOwn(endpoints, node.name);
  const variantOf = ({ endpoint }: MergedEndpoint) => ({ isExtended, isOnNode: isOnNode(endpoint, node) });
  const hidden: Item[] = [];
  const own: Item[] = [];
  // An own endpoint that the node uses unlike its class has other items, which replace those of the class.
  for (const [index, one] of endpoints.entries()) {
    const inClass = cache.ofEndpoint(one, choice.usesOf(one), { isExtended, isOnNode: false });
    const items = cache.ofEndpoint(one, uses[index] ?? [], variantOf(one), isKept);
    if (items === inClass) continue;
    hidden.push(...inClass);
    own.push(...items);
  }
  if (hasClashes(base, { hidden, own })) {
    // Endpoints share a path, which only a state file can cause. All of them together decide which one has it.
    const usesByOwn = new Map(endpoints.map((one, index) => [one, uses[index] ?? []]));
    const items = state.merged.endpoints.flatMap((one) =>
      cache.ofEndpoint(one, usesByOwn.get(one) ?? choice.usesOf(one), variantOf(one)),
    );
    const received = makeServiceItems([...cache.ofService(choice.portHasEndpoints, isExtended), ...items]);
    return { shared, ...editsBetween(shared, received) };
  }
  return { shared, ...compose(classItems.edits, { hidden, own }, shared) };
}

/** Returns the edits of the shared items that have the effect of `first`, followed by `second`. */
function compose(first: Edits, second: Edits, shared: ServiceItems): Edits {
  if (first === noEdits) return { hidden: sortByPath(second.hidden), own: sortByPath(second.own) };
  const [added, removed] = [new Set(first.own), new Set(second.hidden)];
  const hidden = second.hidden.filter((item) => !added.has(item));
  const own = [...first.own.filter((item) => !removed.has(item)), ...second.own];
  // An item that `first` hides and `second` adds again is shared after all.
  const restored = new Set(own.filter((item) => findItem(shared.items, item.path) === item));
  const allHidden = hidden.length === 0 ? first.hidden : sortByPath([...first.hidden, ...hidden]);
  if (restored.size === 0) return { hidden: allHidden, own: sortByPath(own) };
  const isChanged = (item: Item): boolean => !restored.has(item);
  return { hidden: allHidden.filter(isChanged), own: sortByPath(own.filter(isChanged)) };
}

/** True if two endpoints have the same path: two of the class, two of the node's own, or one of each. */
function hasClashes(base: ServiceItems, { hidden, own }: Edits): boolean {
  if (base.hasClashes) return true;
  const removed = new Set(hidden);
  const paths = new Set<string>();
  for (const item of own) {
    const inClass = findItem(base.items, item.path);
    if ((inClass !== undefined && !removed.has(inClass)) || paths.has(item.path)) return true;
    paths.add(item.path);
  }
  return false;
}

/** All items that the node receives, in no particular order. */
export function* overlayItems({ shared, hidden, own }: Overlay): Iterable<Item> {
  const without = new Set(hidden);
  for (const item of shared.items) if (!without.has(item)) yield item;
  yield* own;
}

/** Returns the item that the node receives at a path. O(log items). */
export function itemAt({ shared, hidden, own }: Overlay, path: string): Item | undefined {
  return findItem(own, path) ?? (findItem(hidden, path) === undefined ? findItem(shared.items, path) : undefined);
}
