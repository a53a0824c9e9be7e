import { isDeepStrictEqual } from "node:util";
import { compareText } from "@kpng/model/collections.ts";
import { type EndpointSlice, type SliceKey, serviceKeyOfSlice, sliceKey } from "@kpng/model/endpoint.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import type { Node } from "@kpng/model/node.ts";
import { type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import { reuseSlice, reuseValue } from "@kpng/source/reuse-objects.ts";
import type { ClusterObjects, ObjectChange } from "@kpng/source/source.ts";
import { ShardedMap } from "./sharded-map.ts";
import type { Snapshot } from "./snapshot.ts";

// Pure functions from snapshot to snapshot, for the store. Unchanged values stay the same objects; all comparisons of
// snapshots rely on this.

/** Returns the snapshot after one change, or `snapshot` itself if no value changed. */
export function applyChange(snapshot: Snapshot, change: ObjectChange): Snapshot {
  switch (change.kind) {
    case "put-service":
      return withServices(snapshot, put(snapshot.services, serviceKey(change.service), change.service));
    case "delete-service":
      return withServices(snapshot, snapshot.services.with(change.key, undefined));
    case "put-slice":
      return putSlice(snapshot, change.slice);
    case "delete-slice":
      return deleteSlice(snapshot, change.key);
    case "put-node":
      return withNodes(snapshot, put(snapshot.nodes, change.node.name, change.node));
    case "delete-node":
      return withNodes(snapshot, snapshot.nodes.with(change.name, undefined));
    case "set-service-cidrs":
      return replaceObjects(snapshot, { serviceCIDRs: change.serviceCIDRs });
    default:
      return assertNever(change);
  }
}

/** Returns the snapshot with all objects of the listed kinds replaced, or `snapshot` itself if nothing changed. */
export function replaceObjects(snapshot: Snapshot, objects: ClusterObjects): Snapshot {
  const { services, slices, nodes, serviceCIDRs } = objects;
  let next = snapshot;
  if (services !== undefined) next = withServices(next, replaceAll(next.services, services, serviceKey));
  if (slices !== undefined) next = replaceSlices(next, slices);
  if (nodes !== undefined) next = withNodes(next, replaceAll(next.nodes, nodes, nameOf));
  if (serviceCIDRs !== undefined && !isDeepStrictEqual(serviceCIDRs, next.serviceCIDRs)) {
    next = { ...next, serviceCIDRs };
  }
  return next;
}

function put<V>(map: ShardedMap<V>, key: string, value: V): ShardedMap<V> {
  const old = map.get(key);
  return reuseValue(old, value) === old ? map : map.with(key, value);
}

function putSlice(snapshot: Snapshot, slice: EndpointSlice): Snapshot {
  const service = serviceKeyOfSlice(slice);
  const before = snapshot.slicesByService.get(service) ?? [];
  const old = before.find((other) => other.name === slice.name);
  const next = reuseSlice(old, slice);
  if (next === old) return snapshot;
  const others = before.filter((other) => other !== old);
  return withSlices(snapshot, service, [...others, next].sort(byName));
}

function deleteSlice(snapshot: Snapshot, key: SliceKey): Snapshot {
  const service = key.slice(0, key.lastIndexOf("/")) as ServiceKey;
  const before = snapshot.slicesByService.get(service) ?? [];
  const others = before.filter((slice) => sliceKey(slice) !== key);
  return others.length === before.length ? snapshot : withSlices(snapshot, service, others);
}

function withSlices(snapshot: Snapshot, service: ServiceKey, slices: readonly EndpointSlice[]): Snapshot {
  const value = slices.length === 0 ? undefined : slices;
  return { ...snapshot, slicesByService: snapshot.slicesByService.with(service, value) };
}

function withServices(snapshot: Snapshot, services: Snapshot["services"]): Snapshot {
  return services === snapshot.services ? snapshot : { ...snapshot, services };
}

function withNodes(snapshot: Snapshot, nodes: Snapshot["nodes"]): Snapshot {
  return nodes === snapshot.nodes ? snapshot : { ...snapshot, nodes };
}

function replaceSlices(snapshot: Snapshot, slices: readonly EndpointSlice[]): Snapshot {
  const before = snapshot.slicesByService;
  const groups = Map.groupBy(slices, serviceKeyOfSlice);
  let isSame = groups.size === before.size;
  const entries = [...groups].map(([key, group]) => {
    const old = before.get(key) ?? [];
    const value = reuseSlices(old, group.sort(byName));
    isSame &&= value === old;
    return [key, value] as const;
  });
  return isSame ? snapshot : { ...snapshot, slicesByService: ShardedMap.from(entries) };
}

/** Returns `old` itself if all slices of a Service are unchanged. Both lists are sorted by name. */
function reuseSlices(old: readonly EndpointSlice[], slices: readonly EndpointSlice[]): readonly EndpointSlice[] {
  const oldByName = new Map(old.map((slice) => [slice.name, slice]));
  const reused = slices.map((slice) => reuseSlice(oldByName.get(slice.name), slice));
  return reused.length === old.length && reused.every((slice, index) => slice === old[index]) ? old : reused;
}

/** Returns a map of `values` that shares unchanged values with `map`, or `map` itself if all are unchanged. */
function replaceAll<V>(map: ShardedMap<V>, values: readonly V[], keyOf: (value: V) => string): ShardedMap<V> {
  let isSame = true;
  const entries = values.map((value) => {
    const key = keyOf(value);
    const old = map.get(key);
    const reused = reuseValue(old, value);
    isSame &&= reused === old;
    return [key, reused] as const;
  });
  const next = ShardedMap.from(entries);
  return isSame && next.size === map.size ? map : next;
}

function nameOf({ name }: Node): string {
  return name;
}

function byName(a: EndpointSlice, b: EndpointSlice): number {
  return compareText(a.name, b.name);
}
