import { type MapLayout, mapFlags, mapTypes } from "../bpf/bpf-map.ts";

/** How many elements the maps have room for. */
export interface MapSizes {
  /** Frontends per family. */
  readonly maxFrontends: number;
  /** Endpoints per family; an endpoint counts once for each Service port and policy, and once more while it changes. */
  readonly maxEndpoints: number;
  /** Clients that are remembered for Services with affinity. */
  readonly maxClients: number;
}

/** Names of the maps, which lb.bpf.c refers to; `records` is for this program alone. */
export type MapName =
  | "frontends"
  | "slots"
  | "endpoints"
  | "members"
  | "clients"
  | "ranges"
  | "node_addresses"
  | "pod_interfaces"
  | "peers"
  | "config"
  | "records";

/** Sizes of keys and values in bytes; lb.bpf.c asserts them. */
export const sizes = {
  frontendKey: 20,
  slot: 64,
  endpoint: 24,
  memberKey: 32,
  clientKey: 24,
  rangeKey: 24,
  config: 56,
  /** Room for the text of a record. */
  record: 128,
} as const;

/**
 * Places in a slot, in bytes: three routes of 8 bytes, in the order of `senders`, are first. `service` is a hash of the
 * Service that the connections are counted for; 0 in slots of versions before it.
 */
export const slotPlaces = { key: 24, connections: 48, service: 56 } as const;

/** Increased with each change of the meaning of keys or values: programs of another version get maps of their own. */
export const layoutVersion = 1;

/** Layout of one of our maps. */
export type NamedLayout = MapLayout & { readonly name: MapName };

/**
 * Returns the maps of an instance, for `EbpfMaps`. Both families share them; each has one half of `slots` and
 * `endpoints`.
 */
export function mapLayouts({ maxFrontends, maxEndpoints, maxClients }: MapSizes): readonly NamedLayout[] {
  const make = (
    name: MapName,
    type: keyof typeof mapTypes,
    [keyBytes, valueBytes, maxEntries]: readonly [number, number, number],
    flags = 0,
  ): NamedLayout => ({ name, type: mapTypes[type], keyBytes, valueBytes, maxEntries, flags });
  const { noPreallocation, mappable } = mapFlags;
  return [
    make("frontends", "hash", [sizes.frontendKey, 4, 2 * maxFrontends], noPreallocation),
    make("slots", "array", [4, sizes.slot, 2 * maxFrontends], mappable),
    make("endpoints", "array", [4, sizes.endpoint, 2 * maxEndpoints], mappable),
    make("members", "hash", [sizes.memberKey, 4, 2 * maxEndpoints], noPreallocation),
    make("clients", "lruHash", [sizes.clientKey, 32, maxClients]),
    make("ranges", "lpmTrie", [sizes.rangeKey, 4, 65_536], noPreallocation),
    make("node_addresses", "hash", [16, 4, 4_096], noPreallocation),
    make("pod_interfaces", "hash", [4, 4, 4_096], noPreallocation),
    make("peers", "socketStorage", [4, 148, 0], noPreallocation),
    make("config", "array", [4, sizes.config, 2]),
    make("records", "array", [4, sizes.record, 2]),
  ];
}
