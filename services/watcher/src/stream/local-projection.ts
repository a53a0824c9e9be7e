import { toBinary } from "@bufbuild/protobuf";
import { EndpointSchema, NodeSchema, ServiceSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { encodeExtendedEndpoint, encodeKpngEndpoint } from "@kpng/model/wire/endpoint-message.ts";
import { encodeNode } from "@kpng/model/wire/node-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { type Snapshot, slicesOf } from "../store/snapshot.ts";
import { choosingNode, makeViewNode } from "../view/node.ts";
import { makeServiceView } from "../view/service-view.ts";
import type { Item, Phase, Projection, Unit, UnitChanges } from "./projection.ts";

/** What a subscriber of a node's view asked for. */
export interface LocalRequest {
  readonly nodeName: string;
  readonly proxyName: string;
  /** It understands our fields and honours Scopes. */
  readonly isExtended: boolean;
  /** It wants the node itself. */
  readonly wantsNode: boolean;
}

const node = 0;
const services = 1;
const pods = 2;
const anonymous = 3;

const sections = [SetName.NodesSet, SetName.ServicesSet, SetName.EndpointsSet, SetName.EndpointsSet];

/** KPNG's order (`store2localdiff.go:142`), with the node around it. */
const phases: readonly Phase[] = [
  { kind: "put", section: node },
  { kind: "put", section: services },
  { kind: "delete", section: anonymous },
  { kind: "put", section: pods },
  { kind: "delete", section: pods },
  { kind: "put", section: anonymous },
  { kind: "delete", section: services },
  { kind: "delete", section: node },
];

/** The view of one node as a stream's items. */
export function localProjection(request: LocalRequest): Projection {
  return { sections, phases, project: (snapshot, before) => project(snapshot, before, request) };
}

/** Key of the node's own unit; Services have a slash in theirs. */
const nodeUnit = "node";

function project(snapshot: Snapshot, before: Snapshot | undefined, request: LocalRequest): UnitChanges {
  const units = new Map<string, Unit | undefined>();
  const chooser = choosingNode(snapshot, request.nodeName);
  // Every Service's endpoints are chosen anew where the node has moved to another zone.
  const isAll = before === undefined || choosingNode(before, request.nodeName).zone !== chooser.zone;
  for (const key of isAll ? snapshot.services.keys() : changedServices(snapshot, before)) {
    const service = snapshot.services.get(key);
    const isWanted = service !== undefined && service.proxyName === request.proxyName;
    units.set(
      key,
      isWanted
        ? serviceItems(makeServiceView(service, slicesOf(snapshot, serviceKey(service)), chooser), request.isExtended)
        : undefined,
    );
  }
  if (isAll && before !== undefined) {
    for (const key of before.services.keys()) if (!units.has(key)) units.set(key, undefined);
  }
  if (request.wantsNode && (before === undefined || isNodeChanged(snapshot, before, request.nodeName))) {
    units.set(nodeUnit, nodeItems(snapshot, request.nodeName));
  }
  return units;
}

function changedServices(snapshot: Snapshot, before: Snapshot): ReadonlySet<string> {
  return new Set([
    ...snapshot.services.changedKeys(before.services),
    ...snapshot.slicesByService.changedKeys(before.slicesByService),
  ]);
}

function isNodeChanged(snapshot: Snapshot, before: Snapshot, nodeName: string): boolean {
  return snapshot.nodes.get(nodeName) !== before.nodes.get(nodeName) || snapshot.serviceCIDRs !== before.serviceCIDRs;
}

function serviceItems(view: ServiceView, isExtended: boolean): Item[] {
  const { service } = view;
  const path = `${service.namespace}/${service.name}`;
  const message = encodeService(service, isExtended ? view : undefined);
  const items: Item[] = [{ section: services, path, bytes: toBinary(ServiceSchema, message) }];
  for (const endpoint of view.endpoints) {
    // A reader that ignores Scopes uses all that it gets for cluster IPs: what must not be used there is left out.
    if (!isExtended && !endpoint.scopes.internal) continue;
    const encoded = isExtended ? encodeExtendedEndpoint(endpoint, service) : encodeKpngEndpoint(endpoint, service);
    items.push({
      section: endpoint.podName === "" ? anonymous : pods,
      path: `${path}/${endpoint.key}`,
      bytes: toBinary(EndpointSchema, encoded),
    });
  }
  return items;
}

function nodeItems(snapshot: Snapshot, nodeName: string): Item[] {
  const viewNode = makeViewNode(snapshot, nodeName);
  if (viewNode === undefined) return [];
  return [{ section: node, path: nodeName, bytes: toBinary(NodeSchema, encodeNode(viewNode)) }];
}

/** All items of a node's view, for a reader who wants it once. */
export function localItems(snapshot: Snapshot, request: LocalRequest): readonly Item[] {
  return [...project(snapshot, undefined, request).values()].flatMap((unit) => unit ?? []);
}
