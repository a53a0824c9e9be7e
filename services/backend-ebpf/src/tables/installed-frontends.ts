import type { Family } from "@kpng/model/address.ts";
import { describeKey, familyOf, type KeyText } from "../layout/keys.ts";
import { sizes, slotKeyPlace } from "../layout/map-layouts.ts";
import { describeRoutes, readRoutes, routeKinds } from "../layout/routes.ts";
import { describeRun, runBytes } from "../layout/runs.ts";

/**
 * The contents of maps, read or mapped into memory. `EbpfMaps` returns it; the functions of this file find frontends in
 * it, for `FamilyTables` and inspection.
 */
export interface MapContents {
  /** Elements of map `frontends`. */
  readonly frontends: readonly (readonly [key: Buffer, value: Buffer])[];
  readonly slots: Buffer;
  readonly endpoints: Buffer;
}

/** Returns the slots of a family by the text of their key; slots that belong to another key are left out. Pure. */
export function readSlots(family: Family, { frontends, slots }: MapContents): ReadonlyMap<KeyText, number> {
  const found = new Map<KeyText, number>();
  for (const [key, value] of frontends) {
    const slot = value.readUInt32LE(0);
    const at = slot * sizes.slot + slotKeyPlace;
    if (familyOf(key) !== family || at + sizes.frontendKey > slots.length) continue;
    if (key.compare(slots, at, at + sizes.frontendKey) === 0) found.set(key.toString("latin1"), slot);
  }
  return found;
}

/** Describes installed frontends in the form of `describeFrontend`, without names, by the text of their key. Pure. */
export function describeInstalled(family: Family, contents: MapContents): ReadonlyMap<KeyText, string> {
  const lines = new Map<KeyText, string>();
  for (const [key, slot] of readSlots(family, contents)) {
    const routes = readRoutes(contents.slots, slot).map((route) => {
      const run = route.kind === routeKinds.balance ? runBytes(contents.endpoints, route.run) : undefined;
      return { ...route, endpoints: describeRun(run) };
    });
    lines.set(key, `${describeKey(key)} ${describeRoutes(routes)}`);
  }
  return lines;
}
