import { getOrMake } from "@kpng/model/collections.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Service } from "@kpng/model/service.ts";
import { changedServices, Derived } from "../store/derived.ts";
import { ShardedMap } from "../store/sharded-map.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { ClassChoice, findOwnEndpoints, type OwnEndpoints, sameZone } from "../view/class-choice.ts";
import { type MergedEndpoint, type MergedSlices, mergeSlices, type PortGroup } from "../view/merge-slices.ts";
import type { Item } from "./item.ts";
import { ItemCache } from "./item-cache.ts";
import { diffItems, editItems, type ItemsDiff, noDiff, sortByPath } from "./service-items.ts";
import type { ViewClass } from "./view-target.ts";

/**
 * A Service with its slices, and everything that is computed from them for all subscribers. Snapshots share one object
 * as long as neither the Service nor its slices change; after a change, the next state takes over the results that
 * remain valid.
 *
 * *Bound:* one list of items for each class that was requested. There is one class for each zone that hints name and
 * one for all other zones and, if endpoints are hinted to nodes, one for each set of port groups.
 */
export class ServiceState {
  readonly service: Service;
  readonly slices: readonly EndpointSlice[];
  readonly merged: MergedSlices;
  readonly items: ItemCache;
  readonly ownEndpoints: OwnEndpoints;
  readonly #byClass = new Map<string, CachedClass>();

  /** `before` is the previous state of the Service with the same key. */
  constructor(service: Service, slices: readonly EndpointSlice[], before?: ServiceState) {
    const same = before?.slices === slices ? before : undefined;
    this.service = service;
    this.slices = slices;
    this.merged = same?.merged ?? mergeSlices(slices, before?.merged);
    this.items = new ItemCache(service, slices, before?.items);
    this.ownEndpoints = same?.ownEndpoints ?? findOwnEndpoints(this.merged);
    if (before !== undefined) this.#takeOver(before);
  }

  /**
   * Updates the shared items of each class using only the slices that differ, so that the other items are not sorted
   * again.
   */
  #takeOver(before: ServiceState): void {
    if (before.service !== this.service || before.ownEndpoints.hasZoneHints !== this.ownEndpoints.hasZoneHints) return;
    const { removed, added } = differingParts(before, this);
    for (const [key, old] of before.#byClass) {
      const { viewClass, isRequested, items, choice } = old;
      if (!isRequested || viewClass === undefined) continue;
      const nodeClass = { zone: viewClass.zone, namedGroups: noGroups };
      const next = new ClassChoice(this.service, this.merged, nodeClass);
      if (!next.isSame(choice)) continue;
      const variant = { isExtended: viewClass.isExtended, isOnNode: false };
      const removedItems = removed.flatMap((one) => before.items.ofEndpoint(one, choice.usesOf(one), variant));
      const addedItems = added.flatMap((one) => this.items.ofEndpoint(one, next.usesOf(one), variant));
      this.#byClass.set(key, {
        items: editItems(items, removedItems, addedItems),
        choice: next,
        diff: noDiff,
        viewClass,
        isRequested: false,
      });
    }
  }

  /** Returns the items that a node without own endpoints receives, ascending by path. Each path occurs once. */
  sharedItems(viewClass: Pick<ViewClass, "isExtended" | "zone">): readonly Item[] {
    return this.ofClass(viewClass, noGroups).items;
  }

  /** Returns the items for nodes that hints name in `namedGroups`, except for each node's own endpoints. */
  ofClass({ isExtended, zone }: Pick<ViewClass, "isExtended" | "zone">, namedGroups: readonly PortGroup[]): ClassItems {
    const zoneHinted = sameZone(this.ownEndpoints, zone);
    // The key is JSON, because the names of port groups may contain any character.
    const key =
      namedGroups.length === 0
        ? sharedKey(isExtended, zoneHinted)
        : JSON.stringify([isExtended, zoneHinted, ...namedGroups]);
    const cached = getOrMake(this.#byClass, key, (): CachedClass => {
      const choice = new ClassChoice(this.service, this.merged, { zone: zoneHinted, namedGroups });
      const items = this.#makeItems(choice, isExtended);
      const viewClass = { isExtended, zone: zoneHinted };
      if (namedGroups.length === 0) return { items, choice, diff: noDiff, viewClass, isRequested: true };
      const diff = diffItems(this.sharedItems(viewClass), items);
      return { items, choice, diff, viewClass: undefined, isRequested: true };
    });
    cached.isRequested = true;
    return cached;
  }

  /** Encodes the {@link sharedItems} endpoint by endpoint, unless they already exist. */
  *encodeEach({ isExtended, zone }: Pick<ViewClass, "isExtended" | "zone">): Iterable<readonly Item[]> {
    const zoneHinted = sameZone(this.ownEndpoints, zone);
    if (this.#byClass.has(sharedKey(isExtended, zoneHinted))) return;
    const choice = new ClassChoice(this.service, this.merged, { zone: zoneHinted, namedGroups: noGroups });
    for (const one of this.merged.endpoints) {
      yield this.items.ofEndpoint(one, choice.usesOf(one), { isExtended, isOnNode: false });
    }
  }

  #makeItems(choice: ClassChoice, isExtended: boolean): readonly Item[] {
    const variant = { isExtended, isOnNode: false };
    const endpoints = this.merged.endpoints.flatMap((one) => this.items.ofEndpoint(one, choice.usesOf(one), variant));
    return sortByPath([...this.items.ofService(choice.portHasEndpoints, isExtended), ...endpoints]);
  }
}

/** The items of a Service for the nodes of one class, except for the nodes' own endpoints. */
interface ClassItems {
  readonly items: readonly Item[];
  readonly choice: ClassChoice;
  /** Difference from the shared items of the zone; empty unless endpoints are hinted to nodes. */
  readonly diff: ItemsDiff;
}

interface CachedClass extends ClassItems {
  /** Undefined for nodes that hints name. */
  readonly viewClass: Pick<ViewClass, "isExtended" | "zone"> | undefined;
  /** False until a caller asks for these items. The next state does not take over items that nobody needs any more. */
  isRequested: boolean;
}

function differingParts(before: ServiceState, after: ServiceState) {
  const [old, now] = [new Set(before.merged.parts), new Set(after.merged.parts)];
  const removed = before.merged.parts.filter((part) => !now.has(part)).flatMap(({ endpoints }) => endpoints);
  const added = after.merged.parts.filter((part) => !old.has(part)).flatMap(({ endpoints }) => endpoints);
  return { removed, added };
}

/**
 * Returns the nodes of a class whose overlays of a Service may differ between two of its states: the owners of the
 * endpoints that differ, or the owners of all endpoints if the use of unchanged endpoints may have changed, too.
 */
export function changedOwners(
  before: ServiceState | undefined,
  after: ServiceState | undefined,
  viewClass: ViewClass,
): Iterable<string> {
  const isComparable =
    before?.service === after?.service &&
    before?.ownEndpoints.hintedGroups.size === 0 &&
    after?.ownEndpoints.hintedGroups.size === 0 &&
    before.ownEndpoints.hasZoneHints === after.ownEndpoints.hasZoneHints;
  if (isComparable) {
    const [old, now] = [before.ofClass(viewClass, noGroups), after.ofClass(viewClass, noGroups)];
    if (now.choice.isSame(old.choice)) {
      const { removed, added } = differingParts(before, after);
      const differing = new Map(removed.map((one) => [one.endpoint, one]));
      for (const one of added) {
        if (isSamePlace(differing.get(one.endpoint), one)) differing.delete(one.endpoint);
        else differing.set(one.endpoint, one);
      }
      // For a changed endpoint, `differing` contains both the old and the new object.
      return new Set([...differing.keys()].flatMap(({ nodeName, hintedNodes }) => [nodeName, ...hintedNodes]));
    }
  }
  return new Set([...(before?.ownEndpoints.byNode.keys() ?? []), ...(after?.ownEndpoints.byNode.keys() ?? [])]);
}

/** True if two parts with the same endpoint object lead to the same items: with equal keys and equal ports. */
function isSamePlace(a: MergedEndpoint | undefined, b: MergedEndpoint): boolean {
  return (
    a?.slice.name === b.slice.name &&
    a.slice.hasPodKeys === b.slice.hasPodKeys &&
    a.portEndpoints.every((one, index) => (one === undefined) === (b.portEndpoints[index] === undefined))
  );
}

function sharedKey(isExtended: boolean, zone: string): string {
  return `${isExtended} ${zone}`;
}

const noGroups: readonly PortGroup[] = [];
const noItems: readonly Item[] = [];
const noSlices: readonly EndpointSlice[] = [];

/** The states of all Services by key. *Cost:* proportional to the number of Services that changed. */
export const serviceStates = new Derived(ShardedMap.empty<ServiceState>(), function* (all, before, snapshot) {
  const changed: [string, ServiceState | undefined][] = [];
  for (const key of changedServices(before, snapshot)) {
    const service = snapshot.services.get(key);
    const slices = snapshot.slicesByService.get(key) ?? noSlices;
    changed.push([key, service && new ServiceState(service, slices, all.get(key))]);
    yield;
  }
  return all.withAll(changed);
});

/** Returns the state of a Service; undefined if the Service does not exist or is for another proxy. */
export function serviceAt(snapshot: Snapshot, key: string, { proxyName }: ViewClass): ServiceState | undefined {
  const state = serviceStates.at(snapshot).get(key);
  return state?.service.proxyName === proxyName ? state : undefined;
}

/** Returns {@link ServiceState.sharedItems}; none if the Service does not exist or is for another proxy. */
export function sharedItemsAt(snapshot: Snapshot, key: string, viewClass: ViewClass): readonly Item[] {
  return serviceAt(snapshot, key, viewClass)?.sharedItems(viewClass) ?? noItems;
}
