import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Service } from "@kpng/model/service.ts";
import {
  encodeEndpointInfo,
  encodeNodeInfo,
  encodeServiceInfo,
  endpointInfoHash,
} from "@kpng/model/wire/global-message.ts";
import { formatHash } from "@kpng/model/wire/hash.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { type Item, type Phase, type Projection, reuseUnit, type Unit, type Units } from "./projection.ts";

const nodes = 0;
const services = 1;
const endpoints = 2;

const sections = [SetName.GlobalNodeInfos, SetName.GlobalServiceInfos, SetName.GlobalEndpointInfos];

/** KPNG's order (`store2globaldiff.go:87`). */
const phases: readonly Phase[] = [
  { kind: "put", section: nodes },
  { kind: "put", section: services },
  { kind: "put", section: endpoints },
  { kind: "delete", section: endpoints },
  { kind: "delete", section: services },
  { kind: "delete", section: nodes },
];

/**
 * The whole cluster state as a stream's items.
 *
 * A subscriber that is not extended is a Go relay, which knows of no proxy names: it gets the Services of `proxyName`
 * alone, with their endpoints.
 */
export function globalProjection(options: { readonly isExtended: boolean; readonly proxyName: string }): Projection {
  return { sections, phases, project: (snapshot, previous) => project(snapshot, previous, options) };
}

function project(
  snapshot: Snapshot,
  previous: Units,
  { isExtended, proxyName }: { readonly isExtended: boolean; readonly proxyName: string },
): Units {
  const units = new Map<string, Unit>();
  for (const node of snapshot.nodes.values()) {
    const key = `node ${node.name}`;
    units.set(
      key,
      reuseUnit(previous.get(key), [node], () => [
        { section: nodes, path: `|${node.name}||`, bytes: encodeNodeInfo(node, isExtended) },
      ]),
    );
  }
  const isWanted = (service: Service | undefined): boolean =>
    isExtended || service === undefined || service.proxyName === proxyName;
  for (const [key, service] of snapshot.services.entries()) {
    if (!isWanted(service)) continue;
    units.set(
      `service ${key}`,
      reuseUnit(previous.get(`service ${key}`), [service], () => [
        {
          section: services,
          path: `${service.namespace}|${service.name}||`,
          bytes: encodeServiceInfo(service, isExtended),
        },
      ]),
    );
  }
  for (const [key, slices] of snapshot.slicesByService.entries()) {
    if (!isWanted(snapshot.services.get(key))) continue;
    for (const slice of slices) {
      const unitKey = `slice ${key}/${slice.name}`;
      units.set(
        unitKey,
        reuseUnit(previous.get(unitKey), [slice], () => sliceItems(slice, isExtended)),
      );
    }
  }
  return units;
}

/**
 * KPNG sends each endpoint a second time at `namespace||slice|hash`, an index of its store that leaked: no reader needs
 * it, and we do not.
 */
function sliceItems(slice: EndpointSlice, isExtended: boolean): Item[] {
  const items = new Map<string, Item>();
  for (const endpoint of slice.endpoints) {
    const bytes = encodeEndpointInfo(slice, endpoint, isExtended);
    const base = `${slice.namespace}|${slice.serviceName}|${slice.name}|${formatHash(endpointInfoHash(endpoint))}`;
    // Two endpoints that KPNG's hash takes for one (they differ in pod or hints only) both travel.
    const path = items.has(base) ? `${base}-${endpoint.podName}` : base;
    items.set(path, { section: endpoints, path, bytes });
  }
  return [...items.values()];
}
