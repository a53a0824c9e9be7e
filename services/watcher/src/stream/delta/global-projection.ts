import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  encodeClusterInfo,
  encodeEndpointInfo,
  encodeNodeInfo,
  encodeServiceInfo,
  endpointInfoHash,
} from "@kpng/model/wire/global-message.ts";
import { formatHash } from "@kpng/model/wire/hash.ts";
import { setFrame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { diffInSteps, diffItems } from "./diff-items.ts";
import type { Projection } from "./projection.ts";

/**
 * The state of the whole cluster, for relays: watchers whose source is this watcher. `openGlobalWatch` calls it for
 * each call of globalv1.Sets.Watch. The views of single nodes come from `nodeProjection`.
 *
 * A relay of KPNG, which is written in Go, ignores proxy names. So a subscriber without the extended feature gets only
 * the Services of one proxy name, with their endpoints; an extended subscriber gets all Services.
 *
 * Separate from `nodeProjection`, because a relay gets the state itself, without any choice of endpoints.
 */
export function globalProjection(request: GlobalRequest): Projection {
  const items = (snapshot: Snapshot, keys: Keys): Iterable<Item> => itemsOf(snapshot, keys, request);
  return {
    order,
    items: (snapshot) => items(snapshot, allKeys(snapshot)),
    whole: (snapshot) => diffInSteps([], items(snapshot, allKeys(snapshot)), order),
    between(before, snapshot) {
      const keys = changedKeys(before, snapshot);
      const diff = isLong(snapshot, keys) || isLong(before, keys) ? diffInSteps : diffItems;
      return diff(items(before, keys), items(snapshot, keys), order);
    },
  };
}

const cluster = 3;
const nodes = 0;
const services = 1;
const endpoints = 2;

/** KPNG's order (`store2globaldiff.go:87`). */
const order: Order = {
  sections: [
    SetName.GlobalNodeInfos,
    SetName.GlobalServiceInfos,
    SetName.GlobalEndpointInfos,
    SetName.GlobalClusterInfos,
  ],
  phases: [
    { kind: "put", section: cluster },
    { kind: "put", section: nodes },
    { kind: "put", section: services },
    { kind: "put", section: endpoints },
    { kind: "delete", section: endpoints },
    { kind: "delete", section: services },
    { kind: "delete", section: nodes },
    { kind: "delete", section: cluster },
  ],
};

/** The options of a relay's request that determine which objects it gets, and in which encoding. */
export interface GlobalRequest {
  readonly isExtended: boolean;
  /** The proxy name of the Services for a subscriber without the extended feature. */
  readonly proxyName: string;
}

/** The objects of a snapshot to encode. */
interface Keys {
  /** True to encode what belongs to no object. */
  readonly hasCluster: boolean;
  readonly nodes: Iterable<string>;
  readonly services: Iterable<string>;
  /** The Services whose slices are encoded. */
  readonly slices: Iterable<string>;
}

/** Objects and endpoints that one step compares: 5 to 10 ms. More are compared in steps. */
const maxObjects = 1_024;

function isLong(snapshot: Snapshot, { nodes, services, slices }: Keys): boolean {
  let count = [...nodes].length + [...services].length;
  for (const key of slices) {
    for (const { endpoints } of snapshot.slicesByService.get(key) ?? []) count += endpoints.length;
  }
  return count > maxObjects;
}

function allKeys({ nodes, services, slicesByService }: Snapshot): Keys {
  return { hasCluster: true, nodes: nodes.keys(), services: services.keys(), slices: slicesByService.keys() };
}

function changedKeys(before: Snapshot, snapshot: Snapshot): Keys {
  const changed = [...snapshot.services.changedKeys(before.services)];
  const slices = snapshot.slicesByService.changedKeys(before.slicesByService);
  return {
    hasCluster: before.serviceCIDRs !== snapshot.serviceCIDRs,
    nodes: [...snapshot.nodes.changedKeys(before.nodes)],
    services: changed,
    // If a Service changes its proxy name, its slices appear or disappear with it.
    slices: new Set([...slices, ...changed]),
  };
}

function* itemsOf(snapshot: Snapshot, keys: Keys, request: GlobalRequest): Iterable<Item> {
  const { isExtended } = request;
  if (keys.hasCluster && isExtended && snapshot.serviceCIDRs.length > 0) {
    yield makeItem(cluster, "|||", encodeClusterInfo(snapshot.serviceCIDRs));
  }
  for (const name of keys.nodes) {
    const node = snapshot.nodes.get(name);
    if (node !== undefined) yield makeItem(nodes, `|${name}||`, encodeNodeInfo(node, isExtended));
  }
  for (const key of keys.services) {
    const service = snapshot.services.get(key);
    if (service === undefined || !isWanted(snapshot, key, request)) continue;
    yield makeItem(services, `${service.namespace}|${service.name}||`, encodeServiceInfo(service, isExtended));
  }
  for (const key of keys.slices) {
    if (!isWanted(snapshot, key, request)) continue;
    for (const slice of snapshot.slicesByService.get(key) ?? []) yield* sliceItems(slice, isExtended);
  }
}

function isWanted(snapshot: Snapshot, key: string, { isExtended, proxyName }: GlobalRequest): boolean {
  const service = snapshot.services.get(key);
  return isExtended || service === undefined || service.proxyName === proxyName;
}

/**
 * KPNG sends each endpoint a second time, at `namespace||slice|hash`: an index of its store that no reader needs. We
 * leave it out.
 */
function sliceItems(slice: EndpointSlice, isExtended: boolean): Iterable<Item> {
  const items = new Map<string, Item>();
  for (const endpoint of slice.endpoints) {
    const base = `${slice.namespace}|${slice.serviceName}|${slice.name}|${formatHash(endpointInfoHash(endpoint))}`;
    // KPNG's hash ignores pods and hints. Endpoints that differ only in these get different paths.
    let path = base;
    for (let count = 1; items.has(path); count++) path = `${base}-${endpoint.podName}${count === 1 ? "" : `-${count}`}`;
    items.set(path, makeItem(endpoints, path, encodeEndpointInfo(slice, endpoint, isExtended)));
  }
  return items.values();
}

function makeItem(section: number, path: string, bytes: Uint8Array): Item {
  return { section, path, frame: setFrame(order.sections[section] ?? 0, path, bytes) };
}
