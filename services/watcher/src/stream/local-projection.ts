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
import { type Item, noUnits, type Phase, type Projection, reuseUnit, type Unit, type Units } from "./projection.ts";

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
  return { sections, phases, project: (snapshot, previous) => project(snapshot, previous, request) };
}

function project(snapshot: Snapshot, previous: Units, request: LocalRequest): Units {
  const units = new Map<string, Unit>();
  const chooser = choosingNode(snapshot, request.nodeName);
  const { isExtended } = request;
  for (const [key, service] of snapshot.services.entries()) {
    if (service.proxyName !== request.proxyName) continue;
    const slices = slicesOf(snapshot, serviceKey(service));
    const inputs = [service, slices.length === 0 ? undefined : slices, chooser.name, chooser.zone, isExtended];
    units.set(
      key,
      reuseUnit(previous.get(key), inputs, () => serviceItems(makeServiceView(service, slices, chooser), isExtended)),
    );
  }
  if (request.wantsNode) {
    const inputs = [snapshot.nodes.get(request.nodeName), snapshot.serviceCIDRs];
    units.set(
      "",
      reuseUnit(previous.get(""), inputs, () => nodeItems(snapshot, request.nodeName)),
    );
  }
  return units;
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
  return [...project(snapshot, noUnits, request).values()].flatMap((unit) => unit.items);
}
