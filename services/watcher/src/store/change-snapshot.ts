import { compareText } from "@kpng/model/collections.ts";
import { type EndpointSlice, type SliceKey, serviceKeyOfSlice, sliceKey } from "@kpng/model/endpoint.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import type { Node } from "@kpng/model/node.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { reuseSlice, reuseValue } from "@kpng/source/reuse-objects.ts";
import type { ClusterObjects, ObjectChange } from "@kpng/source/source.ts";
import { ShardedMap } from "./sharded-map.ts";
import type { Snapshot } from "./snapshot.ts";

// Pure functions from snapshot to snapshot, for the store. Unchanged values stay the same objects; all comparisons of
// snapshots rely on this.

/** Returns the snapshot after one change, or `snapshot` itself if no value changed. */
export function applyChange(snapshot: Snapshot, change: ObjectChange): Snapshot {
  const { services, slicesByService, nodes } = snapshot;
  switch (change.kind) {
    case "put-service":
      return withFields(snapshot, { services: put(services, serviceKey(change.service), change.service) });
    case "delete-service":
      return withFields(snapshot, { services: services.with(change.key, undefined) });
    case "put-slice":
      return withFields(snapshot, { slicesByService: putSlice(slicesByService, change.slice) });
    case "delete-slice":
      return withFields(snapshot, { slicesByService: deleteSlice(slicesByService, change.key) });
    case "put-node":
      return withFields(snapshot, { nodes: put(nodes, change.node.name, change.node) });
    case "delete-node":
      return withFields(snapshot, { nodes: nodes.with(change.name, undefined) });
    case "set-service-cidrs":
      return replaceObjects(snapshot, { serviceCIDRs: change.serviceCIDRs });
    default:
      return assertNever(change);
  }
}

/** Returns the snapshot with all objects of the listed kinds replaced, or `snapshot` itself if nothing changed. */
export function replaceObjects(snapshot: Snapshot, objects: ClusterObjects): Snapshot {
  const { services, slices, nodes, serviceCIDRs } = objects;
  const groups = slices && Map.groupBy(slices, serviceKeyOfSlice);
  for (const group of groups?.values() ?? []) group.sort(byName);
  return withFields(snapshot, {
    ...(services && { services: replaceAll(snapshot.services, keyed(services, serviceKey), reuseValue) }),
    ...(groups && { slicesByService: replaceAll(snapshot.slicesByService, groups, reuseSlices) }),
    ...(nodes && { nodes: replaceAll(snapshot.nodes, keyed(nodes, nameOf), reuseValue) }),
    ...(serviceCIDRs && { serviceCIDRs: reuseValue(snapshot.serviceCIDRs, serviceCIDRs) }),
  });
}

type Fields = Pick<Snapshot, "services" | "slicesByService" | "nodes" | "serviceCIDRs">;

function withFields(before: Snapshot, fields: Partial<Fields>): Snapshot {
  const next = { ...before, ...fields };
  const isSame =
    next.services === before.services &&
    next.slicesByService === before.slicesByService &&
    next.nodes === before.nodes &&
    next.serviceCIDRs === before.serviceCIDRs;
  return isSame ? before : next;
}

function put<V>(map: ShardedMap<V>, key: string, value: V): ShardedMap<V> {
  return map.with(key, reuseValue(map.get(key), value));
}

function putSlice(map: Fields["slicesByService"], slice: EndpointSlice): Fields["slicesByService"] {
  const key = serviceKeyOfSlice(slice);
  const before = map.get(key) ?? [];
  const others = before.filter(({ name }) => name !== slice.name);
  return map.with(key, reuseSlices(before, [...others, slice].sort(byName)));
}

function deleteSlice(map: Fields["slicesByService"], key: SliceKey): Fields["slicesByService"] {
  const service = key.slice(0, key.lastIndexOf("/"));
  const before = map.get(service) ?? [];
  const others = before.filter((slice) => sliceKey(slice) !== key);
  if (others.length === before.length) return map;
  return map.with(service, others.length === 0 ? undefined : others);
}

/** Returns `old` itself if all slices of a Service are unchanged. Both lists are sorted by name. */
function reuseSlices(old: readonly EndpointSlice[] = [], slices: readonly EndpointSlice[]): readonly EndpointSlice[] {
  const oldByName = new Map(old.map((slice) => [slice.name, slice]));
  const reused = slices.map((slice) => reuseSlice(oldByName.get(slice.name), slice));
  return reused.length === old.length && reused.every((slice, index) => slice === old[index]) ? old : reused;
}

/** Returns a map of `entries` that shares unchanged values with `map`, or `map` itself if all are unchanged. */
function replaceAll<V>(
  map: ShardedMap<V>,
  entries: Iterable<readonly [string, V]>,
  reuse: (old: V | undefined, value: V) => V,
): ShardedMap<V> {
  let isSame = true;
  const reused = Iterator.from(entries).map(([key, value]) => {
    const old = map.get(key);
    const kept = reuse(old, value);
    isSame &&= kept === old;
    return [key, kept] as const;
  });
  const next = ShardedMap.from(reused);
  return isSame && next.size === map.size ? map : next;
}

function keyed<V>(values: readonly V[], keyOf: (value: V) => string): Iterable<readonly [string, V]> {
  return values.values().map((value) => [keyOf(value), value] as const);
}

function nameOf({ name }: Node): string {
  return name;
}

function byName(a: EndpointSlice, b: EndpointSlice): number {
  return compareText(a.name, b.name);
}
