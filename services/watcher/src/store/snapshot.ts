import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service, ServiceKey } from "@kpng/model/service.ts";
import { ShardedMap } from "./sharded-map.ts";

/** The whole cluster state at one revision. It never changes; equal parts of two snapshots are the same objects. */
export interface Snapshot {
  /** Number of the store's update, from 1, +1 each; 0 for the empty beginning. */
  readonly revision: number;
  /** True once every kind has been listed completely. */
  readonly isSynced: boolean;
  /** When the store had it, in milliseconds since 1970, with fractions; 0 for the empty beginning. */
  readonly storedAtMs: number;
  readonly services: ShardedMap<Service>;
  /** The slices of each Service, ascending by name; also of Services that do not exist. */
  readonly slicesByService: ShardedMap<readonly EndpointSlice[]>;
  readonly nodes: ShardedMap<Node>;
  /** CIDRs that cluster IPs are taken from; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
  /** The last revisions that are traced, oldest first, at most {@link maxTraces}; some may be of long ago. */
  readonly traces: readonly TracedRevision[];
}

/** A revision whose way to the nodes is recorded. */
export interface TracedRevision {
  readonly revision: number;
  /** Of the span that stands for the change that made it. */
  readonly traceparent: string;
  readonly storedAtMs: number;
  /** How many nodes may record their part, of all that this watcher's subscribers stand for; may be less than 1. */
  readonly nodes: number;
}

export const maxTraces = 16;

export const emptySnapshot: Snapshot = {
  revision: 0,
  isSynced: false,
  storedAtMs: 0,
  services: ShardedMap.empty(),
  slicesByService: ShardedMap.empty(),
  nodes: ShardedMap.empty(),
  serviceCIDRs: [],
  traces: [],
};

export function slicesOf(snapshot: Snapshot, key: ServiceKey): readonly EndpointSlice[] {
  return snapshot.slicesByService.get(key) ?? [];
}
