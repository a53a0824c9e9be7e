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
}

export const emptySnapshot: Snapshot = {
  revision: 0,
  isSynced: false,
  storedAtMs: 0,
  services: ShardedMap.empty(),
  slicesByService: ShardedMap.empty(),
  nodes: ShardedMap.empty(),
  serviceCIDRs: [],
};

export function slicesOf(snapshot: Snapshot, key: ServiceKey): readonly EndpointSlice[] {
  return snapshot.slicesByService.get(key) ?? [];
}
