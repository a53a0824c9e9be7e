import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import {
  encodeEndpointInfo,
  encodeNodeInfo,
  encodeServiceInfo,
  endpointInfoHash,
} from "@kpng/model/wire/global-message.ts";
import { formatHash } from "@kpng/model/wire/hash.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { Item, Phase, Projection, Unit, UnitChanges } from "./projection.ts";

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
export function globalProjection(options: GlobalOptions): Projection {
  return { sections, phases, project: (snapshot, before) => project(snapshot, before, options) };
}

export interface GlobalOptions {
  readonly isExtended: boolean;
  readonly proxyName: string;
}

function project(snapshot: Snapshot, before: Snapshot | undefined, options: GlobalOptions): UnitChanges {
  const { isExtended } = options;
  const units = new Map<string, Unit | undefined>();
  for (const name of before === undefined ? snapshot.nodes.keys() : snapshot.nodes.changedKeys(before.nodes)) {
    const node = snapshot.nodes.get(name);
    const item = node && { section: nodes, path: `|${name}||`, bytes: encodeNodeInfo(node, isExtended) };
    units.set(`node ${name}`, item && [item]);
  }
  for (const key of before === undefined ? snapshot.services.keys() : snapshot.services.changedKeys(before.services)) {
    const service = snapshot.services.get(key);
    const item = service && {
      section: services,
      path: `${service.namespace}|${service.name}||`,
      bytes: encodeServiceInfo(service, isExtended),
    };
    units.set(`service ${key}`, item && isWanted(snapshot, key, options) ? [item] : undefined);
  }
  for (const key of changedSlices(snapshot, before)) {
    const slices = isWanted(snapshot, key, options) ? snapshot.slicesByService.get(key) : undefined;
    units.set(
      `slices ${key}`,
      slices?.flatMap((slice) => sliceItems(slice, isExtended)),
    );
  }
  return units;
}

/** Services whose slices may be told differently: a Service that changes its proxy takes its slices along. */
function changedSlices(snapshot: Snapshot, before: Snapshot | undefined): ReadonlySet<string> {
  if (before === undefined) return new Set(snapshot.slicesByService.keys());
  return new Set([
    ...snapshot.slicesByService.changedKeys(before.slicesByService),
    ...snapshot.services.changedKeys(before.services),
  ]);
}

function isWanted(snapshot: Snapshot, key: string, { isExtended, proxyName }: GlobalOptions): boolean {
  const service = snapshot.services.get(key);
  return isExtended || service === undefined || service.proxyName === proxyName;
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
