import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Position } from "@kpng/model/forward.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service, ServiceKey } from "@kpng/model/service.ts";
import type { Origin } from "@kpng/source/source.ts";
import { ShardedMap } from "./sharded-map.ts";

/** The immutable cluster state at one revision; `Derived` explains what snapshots share. */
export interface Snapshot {
  /** Counted from 1; 0 for the empty initial state. */
  readonly revision: number;
  /** True once all kinds have been listed completely. */
  readonly isSynced: boolean;
  /** In fractional milliseconds since 1970; 0 for the empty initial state. */
  readonly storedAtMs: number;
  /** How new the state was known to be when it was stored. The position's source is "" until something is stored. */
  readonly position: Position;
  readonly services: ShardedMap<Service>;
  /** Slices by Service, sorted by name. Includes slices of Services that do not exist. */
  readonly slicesByService: ShardedMap<readonly EndpointSlice[]>;
  readonly nodes: ShardedMap<Node>;
  /** CIDRs from which cluster IPs are allocated; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
  /**
   * The newest traced revisions, oldest first, at most {@link maxTraces}. They may be much older than this snapshot.
   */
  readonly traces: readonly TracedRevision[];
}

/** A revision that has an OpenTelemetry trace, which the nodes continue. */
export interface TracedRevision {
  readonly revision: number;
  /** Traceparent of the span for the change that created the revision. */
  readonly traceparent: string;
  readonly storedAtMs: number;
  /** Number of nodes, among all nodes behind this watcher, that may record spans; may be less than 1. */
  readonly nodes: number;
}

/** Maximum number of traced revisions in a snapshot. */
export const maxTraces = 16;

/** The first snapshot of every store. `Derived` recognizes this object, whose values it does not compute. */
export const emptySnapshot: Snapshot = {
  revision: 0,
  isSynced: false,
  storedAtMs: 0,
  position: { source: "", services: 0n, slices: 0n, nodes: 0n, current: { services: 0n, slices: 0n, nodes: 0n } },
  services: ShardedMap.empty(),
  slicesByService: ShardedMap.empty(),
  nodes: ShardedMap.empty(),
  serviceCIDRs: [],
  traces: [],
};

export function slicesOf(snapshot: Snapshot, key: ServiceKey): readonly EndpointSlice[] {
  return snapshot.slicesByService.get(key) ?? [];
}

/** A new revision, as observers of the store see it: the change and its cause. */
export interface Update extends Cause {
  readonly before: Snapshot;
  /** The new snapshot, before it is published. Its `traces` are still the traces of `before`. */
  readonly next: Snapshot;
  /** {@link Store.instance}. */
  readonly instance: string;
}

/** Origin and start of an update of the store. */
export interface Cause {
  readonly origin: Origin | undefined;
  /** Time at which the store began to apply the update, in fractional milliseconds since 1970. */
  readonly beganAtMs: number;
}

/**
 * Yields the times at which the slice changes between two snapshots were triggered, e.g. by a pod, in milliseconds
 * since 1970. They come from the annotation `endpoints.kubernetes.io/last-change-trigger-time`.
 */
export function* triggerTimes(before: Snapshot, snapshot: Snapshot): Iterable<number> {
  for (const key of snapshot.slicesByService.changedKeys(before.slicesByService)) {
    const old = new Set<EndpointSlice>(before.slicesByService.get(key));
    for (const slice of snapshot.slicesByService.get(key) ?? []) {
      if (slice.triggeredAtMs !== undefined && !old.has(slice)) yield slice.triggeredAtMs;
    }
  }
}

/** Counts the objects of each kind. *Cost:* one pass over all slices. */
export function countObjects({ services, slicesByService, nodes }: Snapshot) {
  let sliceCount = 0;
  let endpointCount = 0;
  for (const slices of slicesByService.values()) {
    sliceCount += slices.length;
    for (const { endpoints } of slices) endpointCount += endpoints.length;
  }
  return { serviceCount: services.size, sliceCount, endpointCount, nodeCount: nodes.size };
}
