import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Position } from "@kpng/model/forward/position.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service, ServiceKey } from "@kpng/model/service.ts";
import { ShardedMap } from "./sharded-map.ts";

/**
 * The whole cluster state at one revision. Immutable; unchanged parts of two snapshots are the same objects.
 *
 * The store makes one for each revision, with the functions of `change-snapshot.ts`; views, streams and queries read
 * it. Separate from the store, because readers need only this type.
 */
export interface Snapshot {
  /** Number of the state, counted from 1; 0 for the empty initial state. */
  readonly revision: number;
  /** True once all kinds have been listed completely. */
  readonly isSynced: boolean;
  /** When it was stored, in milliseconds since 1970, with fractions; 0 for the empty initial state. */
  readonly storedAtMs: number;
  /** How new the state is. Its source is "" until something is stored. */
  readonly position: Position;
  readonly services: ShardedMap<Service>;
  /** Slices by Service, sorted by name. Includes Services that do not exist. */
  readonly slicesByService: ShardedMap<readonly EndpointSlice[]>;
  readonly nodes: ShardedMap<Node>;
  /** CIDRs from which cluster IPs are allocated; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
  /** The newest traced revisions, oldest first, at most {@link maxTraces}. They may be much older than this one. */
  readonly traces: readonly TracedRevision[];
}

/** A revision that has an OpenTelemetry trace, which the nodes continue. */
export interface TracedRevision {
  readonly revision: number;
  /** Traceparent of the span of the change that made the revision. */
  readonly traceparent: string;
  readonly storedAtMs: number;
  /** Number of nodes that may record spans, among all nodes behind this watcher; may be less than 1. */
  readonly nodes: number;
}

/** Limit for the traced revisions in a snapshot. */
export const maxTraces = 16;

/** Initial state of every store. */
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

/** Returns the slices of a Service; an empty list if it has none. */
export function slicesOf(snapshot: Snapshot, key: ServiceKey): readonly EndpointSlice[] {
  return snapshot.slicesByService.get(key) ?? [];
}
