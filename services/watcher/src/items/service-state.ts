import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Service } from "@kpng/model/service.ts";
import { changedServices, derived } from "../store/derived.ts";
import { ShardedMap } from "../store/sharded-map.ts";
import { type ClassChoice, chooseForClass, findOwn, type NodeClass, type OwnEndpoints } from "../view/class-choice.ts";
import { type MergedSlices, mergeSlices } from "../view/merge-slices.ts";
import { ItemCache } from "./item-cache.ts";
import { makeServiceItems, type ServiceItems } from "./service-items.ts";

/** What the nodes of a class are told of a Service that has no endpoint of their own. */
export interface ClassItems {
  readonly unit: ServiceItems;
  readonly choice: ClassChoice;
}

/**
 * A Service with its slices, and what is made of the two once for all who ask. It is the same object in all snapshots in
 * which both are the same.
 *
 * *Bound:* a unit for each class that somebody asked for; classes are zones, where endpoints are meant for zones, and
 * groups, where they are meant for nodes.
 */
export class ServiceState {
  readonly service: Service;
  readonly slices: readonly EndpointSlice[];
  readonly merged: MergedSlices;
  readonly items: ItemCache;
  /** Which endpoints are each node's own. */
  readonly own: OwnEndpoints;
  readonly #byClass = new Map<string, ClassItems>();

  /** `before` is what was at the same key. */
  constructor(service: Service, slices: readonly EndpointSlice[], before?: ServiceState) {
    const same = before?.slices === slices ? before : undefined;
    this.service = service;
    this.slices = slices;
    this.merged = same?.merged ?? mergeSlices(slices);
    this.items = new ItemCache(service, this.merged.endpoints, before?.items);
    this.own = same?.own ?? findOwn(this.merged);
  }

  ofClass(nodeClass: NodeClass, isExtended: boolean): ClassItems {
    const { zone, namedGroups } = nodeClass;
    // Names of ports may hold any character.
    const name =
      namedGroups.length === 0 ? `${isExtended} ${zone}` : JSON.stringify([isExtended, zone, ...namedGroups]);
    return getOrMake(this.#byClass, name, () => this.#makeClass(nodeClass, isExtended));
  }

  #makeClass(nodeClass: NodeClass, isExtended: boolean): ClassItems {
    const { service, merged, items } = this;
    const choice = chooseForClass(service, merged, nodeClass);
    const form = { isExtended, isOnNode: false };
    const ofEndpoints = merged.endpoints.flatMap((one) => items.ofEndpoint(one, choice.usesOf(one), form));
    return {
      unit: makeServiceItems([...items.ofService(choice.portHasEndpoints, isExtended), ...ofEndpoints]),
      choice,
    };
  }
}

const noSlices: readonly EndpointSlice[] = [];

/** The Services of a snapshot with their slices, by key. *Cost:* those that changed. */
export const serviceStates = derived(ShardedMap.empty<ServiceState>(), (all, before, snapshot) => {
  const { services, slicesByService } = snapshot;
  const stateAt = (key: string): ServiceState | undefined => {
    const service = services.get(key);
    return service && new ServiceState(service, slicesByService.get(key) ?? noSlices, all.get(key));
  };
  return all.withAll(changedServices(before, snapshot).map((key) => [key, stateAt(key)]));
});
