import type { Family } from "@kpng/model/address.ts";
import { describeKey, familyOf, type KeyText, readAddress } from "../layout/keys.ts";
import { sizes, slotPlaces } from "../layout/map-layouts.ts";
import { describeRoutes, isBalancing, readRoutes } from "../layout/routes.ts";
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

/** Returns the slots of a family by the text of their key; slots that belong to another key are left out. Pure. */
export function readSlots(family: Family, { frontends, slots }: MapContents): ReadonlyMap<KeyText, number> {
  const found = new Map<KeyText, number>();
  for (const [key, value] of frontends) {
    const slot = value.readUInt32LE(0);
    const at = slot * sizes.slot + slotPlaces.key;
    if (familyOf(key) !== family || at + sizes.frontendKey > slots.length) continue;
    if (key.compare(slots, at, at + sizes.frontendKey) === 0) found.set(key.toString("latin1"), slot);
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
export function describeInstalled(family: Family, contents: MapContents): ReadonlyMap<KeyText, string> {
  const ranges = readRanges(family, contents);
  const lines = new Map<KeyText, string>();
  for (const [key, slot] of readSlots(family, contents)) {
    const routes = readRoutes(contents.slots, slot).map((route) => {
      const run = isBalancing(route.flags) ? runBytes(contents.endpoints, route.run) : undefined;
      return { ...route, endpoints: describeRun(run), ranges: ranges.get(route.ranges) ?? [] };
    });
    lines.set(key, `${describeKey(key)} ${describeRoutes(routes)}`);
  }
  return lines;
}
