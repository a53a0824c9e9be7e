import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Service } from "@kpng/model/service.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { isOnNode } from "../view/choose-endpoints.ts";
import {
  type ClassChoice,
  chooseForClass,
  findOwn,
  type NodeClass,
  namedGroupsFor,
  type OwnEndpoints,
} from "../view/class-choice.ts";
import { type MergedEndpoint, type MergedSlices, mergeSlices } from "../view/merge-slices.ts";
import { endpointItems, serviceItem } from "./endpoint-items.ts";
import type { Audience } from "./local-units.ts";
import type { Item } from "./projection.ts";
import { diffUnits, emptyUnit, findItem, makeUnit, type Unit } from "./unit.ts";

/** What the nodes of a class are told of a Service, and one of them by way of correction. */
export interface NodeUnit {
  /** Shared by all nodes of the class. */
  readonly base: Unit;
  /** Items of the base that the node is not told. */
  readonly hidden: readonly Item[];
  /** Items that it is told beside the rest of the base. A path that is here and in the base is among the hidden. */
  readonly own: readonly Item[];
}

export const noNodeUnit: NodeUnit = { base: emptyUnit, hidden: [], own: [] };

/** A Service with its slices, as a snapshot has them. */
export interface ServiceState {
  readonly service: Service;
  readonly slices: readonly EndpointSlice[];
}

/** The Service at a key, if it is there and for the audience. */
export function serviceFor(snapshot: Snapshot, key: string, { proxyName }: Audience): ServiceState | undefined {
  const service = snapshot.services.get(key);
  if (service?.proxyName !== proxyName) return undefined;
  return { service, slices: snapshot.slicesByService.get(key) ?? noSlices };
}

/** What a Service without slices has; always the same object, so that it can be a key. */
export const noSlices: readonly EndpointSlice[] = [];

/** Which endpoints are each node's own. */
export function ownEndpointsOf(slices: readonly EndpointSlice[]): OwnEndpoints {
  return getOrMake(ownEndpoints, slices, () => findOwn(mergedOf(slices)));
}

const ownEndpoints = new WeakMap<readonly EndpointSlice[], OwnEndpoints>();

function mergedOf(slices: readonly EndpointSlice[]): MergedSlices {
  return getOrMake(merged, slices, () => mergeSlices(slices));
}

const merged = new WeakMap<readonly EndpointSlice[], MergedSlices>();

/**
 * What every node is told of a Service that has no endpoint of its own there; of a zone, where endpoints are meant for
 * zones. Made once, as long as the Service and its slices are what they are.
 */
export function classUnit({ service, slices }: ServiceState, { isExtended, zone }: Omit<Audience, "proxyName">): Unit {
  const { hasZoneHints } = ownEndpointsOf(slices);
  return ofClass(service, slices, { zone: hasZoneHints ? zone : "", namedGroups: [] }, isExtended).unit;
}

/** The class unit of what is at a key; empty if nothing is, or nothing for the audience. */
export function unitAt(snapshot: Snapshot, key: string, audience: Audience): Unit {
  const state = serviceFor(snapshot, key, audience);
  return state === undefined ? emptyUnit : classUnit(state, audience);
}

/**
 * What a node is told of a Service. With `isKept` false nothing is remembered but what is shared.
 *
 * *Cost:* the node's own endpoints, once the base is made.
 */
export function nodeUnit(
  { service, slices }: ServiceState,
  node: ChoosingNode,
  isExtended: boolean,
  isKept = true,
): NodeUnit {
  const all = ownEndpointsOf(slices);
  const endpoints = all.byNode.get(node.name) ?? [];
  const namedGroups = namedGroupsFor(all, endpoints, node.name);
  const nodeClass = { zone: all.hasZoneHints ? node.zone : "", namedGroups };
  const { unit: base, choice } = ofClass(service, slices, nodeClass, isExtended);
  const hidden: Item[] = [];
  const own: Item[] = [];
  const uses = choice.usesOfOwn(endpoints, node.name);
  for (const [index, one] of endpoints.entries()) {
    const shared = endpointItems(service, one, choice.usesOf(one), { isExtended, isOnNode: false });
    const form = { isExtended, isOnNode: isOnNode(one.endpoint, node) };
    const items = endpointItems(service, one, uses[index] ?? [], form, isKept);
    if (items === shared) continue;
    hidden.push(...shared);
    own.push(...items);
  }
  const unit = { base, hidden, own };
  return isSound(unit) ? unit : clashing({ service, slices }, node, isExtended, { base, choice, endpoints });
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
  { service, slices }: ServiceState,
  node: ChoosingNode,
  isExtended: boolean,
  { base, choice, endpoints }: { base: Unit; choice: ClassChoice; endpoints: readonly MergedEndpoint[] },
): NodeUnit {
  const ownUses = choice.usesOfOwn(endpoints, node.name);
  const usesByOwn = new Map(endpoints.map((one, index) => [one, ownUses[index] ?? []]));
  const items = mergedOf(slices).endpoints.flatMap((one) => {
    const form = { isExtended, isOnNode: isOnNode(one.endpoint, node) };
    return endpointItems(service, one, usesByOwn.get(one) ?? choice.usesOf(one), form);
  });
  const whole = makeUnit([serviceItem(service, choice.portHasEndpoints, isExtended), ...items]);
  const { puts, deletes, replaced } = diffUnits(base, whole);
  return { base, hidden: [...deletes, ...replaced], own: puts };
}

/** All items of a node's unit, in no order. */
export function* itemsOfUnit({ base, hidden, own }: NodeUnit): Iterable<Item> {
  const without = new Set(hidden);
  for (const item of base.items) if (!without.has(item)) yield item;
  yield* own;
}

interface ClassUnit {
  readonly unit: Unit;
  readonly choice: ClassChoice;
}

function ofClass(
  service: Service,
  slices: readonly EndpointSlice[],
  nodeClass: NodeClass,
  isExtended: boolean,
): ClassUnit {
  const byService = getOrMake(classUnits, slices, () => new WeakMap<Service, Map<string, ClassUnit>>());
  const byClass = getOrMake(byService, service, () => new Map<string, ClassUnit>());
  const { zone, namedGroups } = nodeClass;
  // Names of ports may hold any character.
  const name = namedGroups.length === 0 ? `${isExtended} ${zone}` : JSON.stringify([isExtended, zone, ...namedGroups]);
  return getOrMake(byClass, name, () => {
    const all = mergedOf(slices);
    const choice = chooseForClass(service, all, nodeClass);
    const form = { isExtended, isOnNode: false };
    const items = all.endpoints.flatMap((one) => endpointItems(service, one, choice.usesOf(one), form));
    return { unit: makeUnit([serviceItem(service, choice.portHasEndpoints, isExtended), ...items]), choice };
  });
}

const classUnits = new WeakMap<readonly EndpointSlice[], WeakMap<Service, Map<string, ClassUnit>>>();
