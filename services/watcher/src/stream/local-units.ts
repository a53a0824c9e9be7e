import { toBinary } from "@bufbuild/protobuf";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { EndpointSchema, NodeSchema, ServiceSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Service } from "@kpng/model/service.ts";
import { encodeExtendedEndpoint, encodeKpngEndpoint } from "@kpng/model/wire/endpoint-message.ts";
import { encodeNode } from "@kpng/model/wire/node-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { ChoosingNode } from "../view/choose-endpoints.ts";
import { makeViewNode } from "../view/node.ts";
import { makeServiceView } from "../view/service-view.ts";
import { setFrame } from "./frames.ts";
import { getOrMake } from "./get-or-make.ts";
import type { Order } from "./order.ts";
import type { Item, Unit } from "./projection.ts";

export const nodeSection = 0;
export const serviceSection = 1;
export const podSection = 2;
export const anonymousSection = 3;

/** KPNG's order (`store2localdiff.go:142`), with the node around it. */
export const localOrder: Order = {
  sections: [SetName.NodesSet, SetName.ServicesSet, SetName.EndpointsSet, SetName.EndpointsSet],
  phases: [
    { kind: "put", section: nodeSection },
    { kind: "put", section: serviceSection },
    { kind: "delete", section: anonymousSection },
    { kind: "put", section: podSection },
    { kind: "delete", section: podSection },
    { kind: "put", section: anonymousSection },
    { kind: "delete", section: serviceSection },
    { kind: "delete", section: nodeSection },
  ],
};

/** What a subscriber of a node's view asked for. */
export interface LocalRequest {
  readonly nodeName: string;
  readonly proxyName: string;
  /** It understands our fields and honours Scopes. */
  readonly isExtended: boolean;
  /** It wants the node itself. */
  readonly wantsNode: boolean;
}

/**
 * Tells apart the requests that are answered differently about what concerns no node by itself.
 *
 * *Shape:* the zone's length comes first, because a zone of a state file may hold any character.
 */
export function audienceOf({ isExtended, proxyName }: LocalRequest, zone: string): string {
  return `${isExtended} ${zone.length} ${zone} ${proxyName}`;
}

/** What a Service without slices has; always the same object, so that it can be a key. */
export const noSlices: readonly EndpointSlice[] = [];

/**
 * Returns a Service with its endpoints as a node is told of them.
 *
 * Nodes that have no endpoint of the Service on them, and none meant for them by name, are all told the same, or all of
 * a zone where endpoints are meant for zones: they share one unit. It is kept as long as the Service and its slices are
 * what they are.
 */
function serviceUnit(
  service: Service,
  slices: readonly EndpointSlice[],
  node: ChoosingNode,
  isExtended: boolean,
): Unit {
  if (concernedNodes(slices).has(node.name)) return makeUnit(service, slices, node, isExtended);
  const zone = hasZoneHints(slices) ? node.zone : "";
  const audience = `${isExtended} ${zone}`;
  const byService = getOrMake(sharedUnits, slices, () => new WeakMap<Service, Map<string, Unit>>());
  const byAudience = getOrMake(byService, service, () => new Map<string, Unit>());
  const stranger = { name: "", zone };
  return getOrMake(byAudience, audience, () => makeUnit(service, slices, stranger, isExtended));
}

const sharedUnits = new WeakMap<readonly EndpointSlice[], WeakMap<Service, Map<string, Unit>>>();

/** The nodes that are told something of their own: those that an endpoint runs on or is meant for by name. */
export function concernedNodes(slices: readonly EndpointSlice[]): ReadonlySet<string> {
  return getOrMake(concerned, slices, () => {
    const names = slices.flatMap(({ endpoints }) => endpoints.flatMap((one) => [one.nodeName, ...one.hintedNodes]));
    // An endpoint without a node is on no node.
    return new Set(names.filter((name) => name !== ""));
  });
}

/** True if the zone of a node can make a difference. */
function hasZoneHints(slices: readonly EndpointSlice[]): boolean {
  return getOrMake(zoneHints, slices, () =>
    slices.some(({ endpoints }) => endpoints.some(({ hintedZones }) => hintedZones.length > 0)),
  );
}

const zoneHints = new WeakMap<readonly EndpointSlice[], boolean>();

const concerned = new WeakMap<readonly EndpointSlice[], ReadonlySet<string>>();

function makeUnit(service: Service, slices: readonly EndpointSlice[], node: ChoosingNode, isExtended: boolean): Unit {
  const view = makeServiceView(service, slices, node);
  const path = `${service.namespace}/${service.name}`;
  const message = encodeService(service, isExtended ? view : undefined);
  const items = [makeItem(serviceSection, path, toBinary(ServiceSchema, message))];
  for (const endpoint of view.endpoints) {
    // A reader that ignores Scopes uses all that it gets for cluster IPs: what must not be used there is left out.
    if (!isExtended && !endpoint.scopes.internal) continue;
    const encoded = isExtended ? encodeExtendedEndpoint(endpoint, service) : encodeKpngEndpoint(endpoint, service);
    const section = endpoint.podName === "" ? anonymousSection : podSection;
    items.push(makeItem(section, `${path}/${endpoint.key}`, toBinary(EndpointSchema, encoded)));
  }
  return items;
}

/** The items of the Services at `keys` that a request wants; a key that is no Service has none. */
export function* serviceItems(
  snapshot: Snapshot,
  keys: Iterable<string>,
  { proxyName, isExtended }: Pick<LocalRequest, "proxyName" | "isExtended">,
  node: ChoosingNode,
): Iterable<Item> {
  for (const key of keys) {
    const service = snapshot.services.get(key);
    if (service?.proxyName !== proxyName) continue;
    yield* serviceUnit(service, snapshot.slicesByService.get(key) ?? noSlices, node, isExtended);
  }
}

/** The node itself; nothing if the cluster does not know it. */
export function nodeItems(snapshot: Snapshot, nodeName: string): readonly Item[] {
  const node = makeViewNode(snapshot, nodeName);
  return node === undefined ? [] : [makeItem(nodeSection, nodeName, toBinary(NodeSchema, encodeNode(node)))];
}

function makeItem(section: number, path: string, bytes: Uint8Array): Item {
  return { section, path, frame: setFrame(localOrder.sections[section] ?? 0, path, bytes) };
}
