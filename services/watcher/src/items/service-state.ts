import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import type { Service } from "@kpng/model/service.ts";
import { changedServices, derived } from "../store/derived.ts";
import { ShardedMap } from "../store/sharded-map.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { type ClassChoice, chooseForClass, findOwn, type OwnEndpoints } from "../view/class-choice.ts";
import { type MergedSlices, mergeSlices, type PortGroup } from "../view/merge-slices.ts";
import type { Item } from "./item.ts";
import { ItemCache } from "./item-cache.ts";
import {
  type Edits,
  editsBetween,
  makeServiceItems,
  noEdits,
  noServiceItems,
  type ServiceItems,
} from "./service-items.ts";
import type { ViewClass } from "./view-target.ts";

/**
 * A Service with its slices, and everything computed from the two for all subscribers. Snapshots in which neither
 * changes share one object.
 *
 * *Bound:* one list of items for each class that was requested: for each zone, if endpoints are hinted to zones, and
 * for each set of port groups, if endpoints are hinted to nodes.
 *
 * `serviceStates` makes them for each snapshot; `stream/delta` and `serviceOverlay` ask for the items of a view class.
 * Separate from `ItemCache`, which encodes single items: this class decides which items a view class shares.
 */
export class ServiceState {
  readonly service: Service;
  readonly slices: readonly EndpointSlice[];
  readonly merged: MergedSlices;
  readonly items: ItemCache;
  /** Each node's own endpoints. */
  readonly own: OwnEndpoints;
  readonly #byClass = new Map<string, ClassItems>();

  /** `before` is the previous state of the Service with the same key. */
  constructor(service: Service, slices: readonly EndpointSlice[], before?: ServiceState) {
    const same = before?.slices === slices ? before : undefined;
    this.service = service;
    this.slices = slices;
    this.merged = same?.merged ?? mergeSlices(slices);
    this.items = new ItemCache(service, this.merged.endpoints, before?.items);
    this.own = same?.own ?? findOwn(this.merged);
  }

  /** The items that a node without own endpoints receives. */
  sharedItems(viewClass: Pick<ViewClass, "isExtended" | "zone">): ServiceItems {
    return this.ofClass(viewClass, noGroups).items;
  }

  /** The items for nodes that hints name in `namedGroups`, apart from each node's own endpoints. */
  ofClass({ isExtended, zone }: Pick<ViewClass, "isExtended" | "zone">, namedGroups: readonly PortGroup[]): ClassItems {
    const zoneHinted = this.own.hasZoneHints ? zone : "";
    // JSON, because the names of port groups may contain any character.
    const key =
      namedGroups.length === 0
        ? sharedKey(isExtended, zoneHinted)
        : JSON.stringify([isExtended, zoneHinted, ...namedGroups]);
    return getOrMake(this.#byClass, key, () => {
      const choice = chooseForClass(this.service, this.merged, { zone: zoneHinted, namedGroups });
      const items = this.#makeItems(choice, isExtended);
      if (namedGroups.length === 0) return { items, choice, edits: noEdits };
      return { items, choice, edits: editsBetween(this.sharedItems({ isExtended, zone }), items) };
    });
  }

  /**
   * Encodes the endpoints of {@link sharedItems} in steps of `endpointsPerStep`, and yields the items of each step;
   * nothing if they exist. Afterwards, `sharedItems` only sorts them.
   */
  *encodeInSteps(
    { isExtended, zone }: Pick<ViewClass, "isExtended" | "zone">,
    endpointsPerStep: number,
  ): Iterable<readonly Item[]> {
    const zoneHinted = this.own.hasZoneHints ? zone : "";
    if (this.#byClass.has(sharedKey(isExtended, zoneHinted))) return;
    const choice = chooseForClass(this.service, this.merged, { zone: zoneHinted, namedGroups: noGroups });
    const { endpoints } = this.merged;
    for (let first = 0; first < endpoints.length; first += endpointsPerStep) {
      const some = endpoints.slice(first, first + endpointsPerStep);
      yield some.flatMap((one) => this.items.ofEndpoint(one, choice.usesOf(one), { isExtended, isOnNode: false }));
    }
  }

  #makeItems(choice: ClassChoice, isExtended: boolean): ServiceItems {
    const variant = { isExtended, isOnNode: false };
    const endpoints = this.merged.endpoints.flatMap((one) => this.items.ofEndpoint(one, choice.usesOf(one), variant));
    return makeServiceItems([...this.items.ofService(choice.portHasEndpoints, isExtended), ...endpoints]);
  }
}

/** The items of a Service for the nodes of one class, apart from their own endpoints. */
export interface ClassItems {
  readonly items: ServiceItems;
  readonly choice: ClassChoice;
  /** Difference to the items that all view targets of the zone share; empty unless endpoints are hinted to nodes. */
  readonly edits: Edits;
}

function sharedKey(isExtended: boolean, zone: string): string {
  return `${isExtended} ${zone}`;
}

const noGroups: readonly PortGroup[] = [];
const noSlices: readonly EndpointSlice[] = [];

/** The Services of a snapshot with their slices, by key. *Cost:* the Services that changed. */
export const serviceStates = derived(ShardedMap.empty<ServiceState>(), (all, before, snapshot) => {
  const { services, slicesByService } = snapshot;
  const stateAt = (key: string): ServiceState | undefined => {
    const service = services.get(key);
    return service && new ServiceState(service, slicesByService.get(key) ?? noSlices, all.get(key));
  };
  return all.withAll(changedServices(before, snapshot).map((key) => [key, stateAt(key)]));
});

/** Returns the Service with this key; undefined if there is none, or if it is for another proxy. */
export function serviceAt(snapshot: Snapshot, key: string, { proxyName }: ViewClass): ServiceState | undefined {
  const state = serviceStates(snapshot).get(key);
  return state?.service.proxyName === proxyName ? state : undefined;
}

/** Returns the items of a Service that a class shares; none if its views do not include the Service. */
export function sharedItemsAt(snapshot: Snapshot, key: string, viewClass: ViewClass): ServiceItems {
  return serviceAt(snapshot, key, viewClass)?.sharedItems(viewClass) ?? noServiceItems;
}
