import { type MapLayout, mapFlags, mapTypes } from "../bpf/bpf-map.ts";

/** How many elements the maps have room for. */
export interface MapSizes {
  /** Frontends per family. */
  readonly maxFrontends: number;
  /** Endpoints per family; an endpoint counts once for each Service port and policy, and once more while it changes. */
  readonly maxEndpoints: number;
}

/** Names of the maps, which lb.bpf.c refers to. */
export type MapName = "frontends" | "slots" | "endpoints" | "node_addresses" | "peers" | "config";

/** Sizes of keys and values in bytes; lb.bpf.c asserts them. */
export const sizes = {
  frontendKey: 20,
  slot: 40,
  endpoint: 24,
  config: 16,
} as const;

/** Place of the key in a slot, in bytes: two routes of 8 bytes, in the order of `senders`, are first. */
export const slotKeyPlace = 16;

/** Increased with each change of the meaning of keys or values: programs of another version get maps of their own. */
export const layoutVersion = 3;

/** Layout of one of our maps. */
export type NamedLayout = MapLayout & { readonly name: MapName };

/**
 * Returns the maps of an instance, for `EbpfMaps`. Both families share them; each has one half of `slots` and
 * `endpoints`.
 */
export function mapLayouts({ maxFrontends, maxEndpoints }: MapSizes): readonly NamedLayout[] {
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
    make("node_addresses", "hash", [16, 4, 4_096], noPreallocation),
    make("peers", "socketStorage", [4, 36, 0], noPreallocation),
    make("config", "array", [4, sizes.config, 2]),
  ];
}
