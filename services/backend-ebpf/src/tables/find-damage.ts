import type { Family } from "@kpng/model/address.ts";
import { describeKey, familyOf } from "../layout/keys.ts";
import { sizes } from "../layout/map-layouts.ts";
import { isBalancing, readRoutes } from "../layout/routes.ts";
import { describeRun, runBytes } from "../layout/runs.ts";
import { type MapContents, readSlots } from "./installed-frontends.ts";

/**
 * Returns a sign that packets to Services get lost, whichever Services the maps are for: routes that no frontend leads
 * to although there is no frontend at all, a frontend without its routes, or a route to a set without endpoints.
 * Undefined if there is no such sign. `slots` are those of the family, `contents` those of both. Pure; O(frontends +
 * slots).
 *
 * `EbpfRuleSet` calls it for maps that it must not repair. Other damage is found only by a comparison with a view.
 */
export function findDamage(family: Family, contents: MapContents, slots: Buffer): string | undefined {
  const keys = contents.frontends.flatMap(([key]) => (familyOf(key) === family ? [key.toString("latin1")] : []));
  if (keys.length === 0) return hasRoutes(slots) ? "there are routes and no frontends" : undefined;
  const installed = readSlots(family, contents);
  for (const key of keys) {
    const slot = installed.get(key);
    if (slot === undefined) return `frontend ${describeKey(key)} has no routes`;
    const isLost = readRoutes(contents.slots, slot).some(
      ({ flags, run }) => isBalancing(flags) && describeRun(runBytes(contents.endpoints, run)).length === 0,
    );
    if (isLost) return `frontend ${describeKey(key)} leads to a set without endpoints`;
  }
  return undefined;
}

/** Routes of a slot that is free are 0; so is a slot that was never used. */
function hasRoutes(slots: Buffer): boolean {
  for (let slot = 0; slot < slots.length / sizes.slot; slot++) {
    if (readRoutes(slots, slot).some(({ flags }) => flags !== 0)) return true;
  }
  return false;
}
