import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { assertNever } from "@kpng/model/assert-never.ts";
import { type EndpointSlice, type SliceKey, serviceKeyOfSlice, sliceKey } from "@kpng/model/endpoint.ts";
import { type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import { Wakeup } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { ClusterObjects, ClusterSink, Kind, ObjectChange, Origin } from "../source/source.ts";
import { withKeptEndpoints } from "./reuse-endpoints.ts";
import { ShardedMap } from "./sharded-map.ts";
import { emptySnapshot, maxTraces, type Snapshot, type TracedRevision } from "./snapshot.ts";
import type { Cause, Update } from "./update.ts";

export interface StoreOptions {
  /**
   * Told of each revision before anybody can see it; returns what its trace is, or undefined if it is not traced. Must
   * not throw.
   */
  readonly trace?: ((update: Update) => TracedRevision | undefined) | undefined;
}

/**
 * The one holder of cluster state.
 *
 * Each call of `apply` or `replace` that changes anything by value makes one new snapshot; readers keep the one that
 * they took for as long as they need it. Whoever wants the next state waits for it, and finds only the newest; only who
 * must see each one is called back ({@link observe}).
 */
export class Store implements ClusterSink {
  /** Tells this run's revisions from those of any other. */
  readonly instance = randomUUID();
  readonly #changed = new Wakeup();
  readonly #missing = new Set<Kind>(["services", "slices", "nodes"]);
  readonly #trace: StoreOptions["trace"];
  readonly #observers = new Set<(update: Update) => void>();
  #snapshot: Snapshot = emptySnapshot;
  #isWaking = false;

  constructor({ trace }: StoreOptions = {}) {
    this.#trace = trace;
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /** `observer` is told of each revision from now on, before anybody can see it. It must be quick and not throw. */
  observe(observer: (update: Update) => void): void {
    this.#observers.add(observer);
  }

  /** The kinds that no source has listed completely yet. */
  get missingKinds(): readonly Kind[] {
    return [...this.#missing];
  }

  /** How many wait for the next snapshot now. */
  get waitingCount(): number {
    return this.#changed.waitingCount;
  }

  /** Resolves with the first synced snapshot after revision `after`, or undefined when `signal` aborts. */
  async next(after: number, signal: AbortSignal): Promise<Snapshot | undefined> {
    while (!signal.aborted) {
      if (this.#snapshot.isSynced && this.#snapshot.revision > after) return this.#snapshot;
      await this.#changed.wait(signal);
    }
    return undefined;
  }

  /** Calls back once, after the next change, unless cancelled. */
  callNext(callback: () => void): void {
    this.#changed.call(callback);
  }

  cancelNext(callback: () => void): void {
    this.#changed.cancel(callback);
  }

  apply(changes: readonly ObjectChange[], origin?: Origin): void {
    const beganAtMs = wallClockMs();
    this.#publish(changes.reduce(applyChange, this.#snapshot), { origin, beganAtMs });
  }

  replace(objects: ClusterObjects, origin?: Origin): void {
    const beganAtMs = wallClockMs();
    let next = this.#snapshot;
    if (objects.services !== undefined) {
      next = replaceServices(next, objects.services);
      this.#missing.delete("services");
    }
    if (objects.slices !== undefined) {
      next = replaceSlices(next, objects.slices);
      this.#missing.delete("slices");
    }
    if (objects.nodes !== undefined) {
      next = replaceNodes(next, objects.nodes);
      this.#missing.delete("nodes");
    }
    if (objects.serviceCIDRs !== undefined && !isDeepStrictEqual(objects.serviceCIDRs, next.serviceCIDRs)) {
      next = { ...next, serviceCIDRs: objects.serviceCIDRs };
    }
    if (this.#missing.size === 0 && !next.isSynced) next = { ...next, isSynced: true };
    this.#publish(next, { origin, beganAtMs });
  }

  #publish(state: Snapshot, update: Cause): void {
    const before = this.#snapshot;
    if (state === before) return;
    const next = { ...state, revision: before.revision + 1, storedAtMs: wallClockMs() };
    const published = { ...update, before, next, instance: this.instance };
    for (const observer of this.#observers) observer(published);
    const traced = this.#trace?.(published);
    this.#snapshot = traced === undefined ? next : { ...next, traces: [...before.traces, traced].slice(-maxTraces) };
    this.#wake();
  }

  /** After the call that changed the store: several in a row wake once, and nobody's work delays the source's. */
  #wake(): void {
    if (this.#isWaking) return;
    this.#isWaking = true;
    queueMicrotask(() => {
      this.#isWaking = false;
      this.#changed.wake();
    });
  }
}

/** Returns `snapshot` itself if the change makes no difference by value. */
function applyChange(snapshot: Snapshot, change: ObjectChange): Snapshot {
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
    default:
      return assertNever(change);
  }
}

function put<V>(map: ShardedMap<V>, key: string, value: V): ShardedMap<V> {
  return isDeepStrictEqual(map.get(key), value) ? map : map.with(key, value);
}

function putSlice(snapshot: Snapshot, slice: EndpointSlice): Snapshot {
  const service = serviceKeyOfSlice(slice);
  const before = snapshot.slicesByService.get(service) ?? [];
  const old = before.find((other) => other.name === slice.name);
  const next = keptSlice(old, slice);
  if (next === old) return snapshot;
  const others = before.filter((other) => other !== old);
  return withSlices(snapshot, service, [...others, next].sort(byName));
}

/** `slice` in the place of `old`: `old` itself if nothing is news for anybody, which the trigger time alone is not. */
function keptSlice(old: EndpointSlice | undefined, slice: EndpointSlice): EndpointSlice {
  if (old === undefined) return slice;
  const isSame = isDeepStrictEqual({ ...old, triggeredAtMs: undefined }, { ...slice, triggeredAtMs: undefined });
  return isSame ? old : withKeptEndpoints(old, slice);
}

function deleteSlice(snapshot: Snapshot, key: SliceKey): Snapshot {
  const service = key.slice(0, key.lastIndexOf("/")) as ServiceKey;
  const before = snapshot.slicesByService.get(service) ?? [];
  const left = before.filter((slice) => sliceKey(slice) !== key);
  return left.length === before.length ? snapshot : withSlices(snapshot, service, left);
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

function replaceServices(snapshot: Snapshot, services: NonNullable<ClusterObjects["services"]>): Snapshot {
  const entries = services.map((service) => [serviceKey(service), service] as const);
  return withServices(snapshot, replaced(snapshot.services, entries));
}

function replaceNodes(snapshot: Snapshot, nodes: NonNullable<ClusterObjects["nodes"]>): Snapshot {
  return withNodes(
    snapshot,
    replaced(
      snapshot.nodes,
      nodes.map((node) => [node.name, node] as const),
    ),
  );
}

function replaceSlices(snapshot: Snapshot, slices: readonly EndpointSlice[]): Snapshot {
  const before = snapshot.slicesByService;
  const groups = Map.groupBy(slices, serviceKeyOfSlice);
  let isSame = groups.size === before.size;
  const entries = [...groups].map(([key, group]) => {
    const old = before.get(key) ?? [];
    const kept = keptSlices(old, group.sort(byName));
    isSame &&= kept === old;
    return [key, kept] as const;
  });
  return isSame ? snapshot : { ...snapshot, slicesByService: ShardedMap.from(entries) };
}

/** A Service's slices in the place of `old`, or `old` itself; both ascending by name. */
function keptSlices(old: readonly EndpointSlice[], slices: readonly EndpointSlice[]): readonly EndpointSlice[] {
  const oldByName = new Map(old.map((slice) => [slice.name, slice]));
  const kept = slices.map((slice) => keptSlice(oldByName.get(slice.name), slice));
  return kept.length === old.length && kept.every((slice, index) => slice === old[index]) ? old : kept;
}

/** The entries as a map that keeps the identity of every value that did not change, or `map` if none did. */
function replaced<V>(map: ShardedMap<V>, entries: readonly (readonly [string, V])[]): ShardedMap<V> {
  let isSame = true;
  const kept = entries.map(([key, value]) => {
    const old = map.get(key);
    if (old !== undefined && isDeepStrictEqual(old, value)) return [key, old] as const;
    isSame = false;
    return [key, value] as const;
  });
  const next = ShardedMap.from(kept);
  return isSame && next.size === map.size ? map : next;
}

function byName(a: EndpointSlice, b: EndpointSlice): number {
  return compareText(a.name, b.name);
}
