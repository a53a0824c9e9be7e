import type { Family } from "@kpng/model/address.ts";
import { describeKey, familyOf, readAddress } from "../layout/keys.ts";
import { sizes } from "../layout/map-layouts.ts";
import { decodeRoute, describeRoutes, type RouteWord, routeFlags, senders } from "../layout/routes.ts";
import { describeRun, runBytes } from "../layout/runs.ts";

/**
 * The contents of maps, read or mapped into memory. `EbpfMaps` returns it; the functions of this file find frontends in
 * it, for `FamilyTables` and inspection. They are separate from `wanted-service.ts`, which translates the other way.
 */
export interface MapContents {
  /** Elements of map `frontends`. */
  readonly frontends: readonly (readonly [key: Buffer, value: Buffer])[];
  /** Elements of map `ranges`. */
  readonly ranges: readonly (readonly [key: Buffer, value: Buffer])[];
  readonly slots: Buffer;
  readonly endpoints: Buffer;
}

/** A frontend as it was found in the maps. */
export interface InstalledFrontend {
  readonly slot: number;
  /** In the order of `senders`. */
  readonly words: readonly RouteWord[];
}

/** Returns the frontends of a family by the text of their key; slots that belong to another key are left out. Pure. */
export function readFrontends(family: Family, contents: MapContents): ReadonlyMap<string, InstalledFrontend> {
  const found = new Map<string, InstalledFrontend>();
  const { slots } = contents;
  for (const [key, value] of contents.frontends) {
    const slot = value.readUInt32LE(0);
    const at = slot * sizes.slot;
    if (familyOf(key) !== family || at + sizes.slot > slots.length) continue;
    const keyAt = at + senders.length * 8;
    if (key.compare(slots, keyAt, keyAt + sizes.frontendKey) !== 0) continue;
    const words = senders.map((_, index) => slots.readBigUInt64LE(at + index * 8));
    found.set(key.toString("latin1"), { slot, words });
  }
  return found;
}

/** Returns source ranges of a family by their id. *Shape of a range:* `192.0.2.0/24`. Pure. */
export function readRanges(family: Family, contents: MapContents): ReadonlyMap<number, readonly string[]> {
  const found = new Map<number, string[]>();
  for (const [key] of contents.ranges) {
    if (familyOf(key, 8) !== family) continue;
    const length = key.readUInt32LE(0) - (family === "v4" ? 128 : 32);
    const id = key.readUInt32LE(4);
    found.set(id, [...(found.get(id) ?? []), `${readAddress(key, 8)}/${length}`]);
  }
  return found;
}

/** Describes installed frontends in the form of `describeFrontend`, without names, by the text of their key. Pure. */
export function describeInstalled(family: Family, contents: MapContents): ReadonlyMap<string, string> {
  const ranges = readRanges(family, contents);
  const lines = new Map<string, string>();
  for (const [key, { words }] of readFrontends(family, contents)) {
    const routes = words.map((word) => {
      const parts = decodeRoute(word);
      const run = (parts.flags & 3) === routeFlags.balance ? runBytes(contents.endpoints, parts.run) : undefined;
      const endpoints = run === undefined ? [] : describeRun(run);
      return { flags: parts.flags, endpoints, ranges: ranges.get(parts.ranges) ?? [] };
    });
    lines.set(key, `${describeKey(key)} ${describeRoutes(routes)}`);
  }
  return lines;
}
