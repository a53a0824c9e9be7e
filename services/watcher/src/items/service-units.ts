import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { isOnNode } from "../view/choose-endpoints.ts";
import { type ClassChoice, namedGroupsFor } from "../view/class-choice.ts";
import type { MergedEndpoint } from "../view/merge-slices.ts";
import type { Item } from "./item.ts";
import type { ViewClass } from "./node-view-items.ts";
import { diffServiceItems, findItem, makeServiceItems, noServiceItems, type ServiceItems } from "./service-items.ts";
import { type ServiceState, serviceStates } from "./service-state.ts";

/** What the nodes of a class are told of a Service, and one of them by way of correction. */
export interface NodeUnit {
  /** Shared by all nodes of the class. */
  readonly base: ServiceItems;
  /** Items of the base that the node is not told. */
  readonly hidden: readonly Item[];
  /** Items that it is told beside the rest of the base. A path that is here and in the base is among the hidden. */
  readonly own: readonly Item[];
}

export const noNodeUnit: NodeUnit = { base: noServiceItems, hidden: [], own: [] };

/** The Service at a key, if it is there and for the audience. */
export function serviceFor(snapshot: Snapshot, key: string, { proxyName }: ViewClass): ServiceState | undefined {
  const state = serviceStates(snapshot).get(key);
  return state?.service.proxyName === proxyName ? state : undefined;
}

/**
 * What every node is told of a Service that has no endpoint of its own there; of a zone, where endpoints are meant for
 * zones.
 */
export function classItems(state: ServiceState, { isExtended, zone }: Omit<ViewClass, "proxyName">): ServiceItems {
  return state.ofClass({ zone: state.own.hasZoneHints ? zone : "", namedGroups: [] }, isExtended).unit;
}

/** The class unit of what is at a key; empty if nothing is, or nothing for the audience. */
export function classItemsAt(snapshot: Snapshot, key: string, viewClass: ViewClass): ServiceItems {
  const state = serviceFor(snapshot, key, viewClass);
  return state === undefined ? noServiceItems : classItems(state, viewClass);
}

/**
 * What a node is told of a Service. With `isKept` false nothing is remembered but what is shared.
 *
 * *Cost:* the node's own endpoints, once the base is made.
 */
export function nodeUnit(state: ServiceState, node: ChoosingNode, isExtended: boolean, isKept = true): NodeUnit {
  const { items: made, own: all } = state;
  const endpoints = all.byNode.get(node.name) ?? [];
  const namedGroups = namedGroupsFor(all, endpoints, node.name);
  const nodeClass = { zone: all.hasZoneHints ? node.zone : "", namedGroups };
  const { unit: base, choice } = state.ofClass(nodeClass, isExtended);
  const hidden: Item[] = [];
  const own: Item[] = [];
  const uses = choice.usesOfOwn(endpoints, node.name);
  for (const [index, one] of endpoints.entries()) {
    const shared = made.ofEndpoint(one, choice.usesOf(one), { isExtended, isOnNode: false });
    const form = { isExtended, isOnNode: isOnNode(one.endpoint, node) };
    const items = made.ofEndpoint(one, uses[index] ?? [], form, isKept);
    if (items === shared) continue;
    hidden.push(...shared);
    own.push(...items);
  }
  const unit = { base, hidden, own };
  return isSound(unit) ? unit : clashing(state, node, isExtended, { base, choice, endpoints });
}

/** True if no path has two items, neither here nor in what the base was made from. */
function isSound({ base, hidden, own }: NodeUnit): boolean {
  if (base.hasClashes) return false;
  const free = new Set(hidden);
  const paths = new Set<string>();
  for (const item of own) {
    const shared = findItem(base, item.path);
    if ((shared !== undefined && !free.has(shared)) || paths.has(item.path)) return false;
    paths.add(item.path);
  }
  return true;
}

/** Where endpoints share a path, which a state file can make them do, all of them decide who has it. */
function clashing(
  { merged, items: made }: ServiceState,
  node: ChoosingNode,
  isExtended: boolean,
  { base, choice, endpoints }: { base: ServiceItems; choice: ClassChoice; endpoints: readonly MergedEndpoint[] },
): NodeUnit {
  const ownUses = choice.usesOfOwn(endpoints, node.name);
  const usesByOwn = new Map(endpoints.map((one, index) => [one, ownUses[index] ?? []]));
  const items = merged.endpoints.flatMap((one) => {
    const form = { isExtended, isOnNode: isOnNode(one.endpoint, node) };
    return made.ofEndpoint(one, usesByOwn.get(one) ?? choice.usesOf(one), form);
  });
  const whole = makeServiceItems([...made.ofService(choice.portHasEndpoints, isExtended), ...items]);
  const { puts, deletes, replaced } = diffServiceItems(base, whole);
  return { base, hidden: [...deletes, ...replaced], own: puts };
}

/** All items of a node's unit, in no order. */
export function* itemsOfUnit({ base, hidden, own }: NodeUnit): Iterable<Item> {
  const without = new Set(hidden);
  for (const item of base.items) if (!without.has(item)) yield item;
  yield* own;
}
