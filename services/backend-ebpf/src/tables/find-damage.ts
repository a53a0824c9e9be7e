import type { Family } from "@kpng/model/address.ts";
import { describeKey, familyOf } from "../layout/keys.ts";
import { sizes } from "../layout/map-layouts.ts";
import { decodeRoute, routeFlags, senders } from "../layout/routes.ts";
import { describeRun, runBytes } from "../layout/runs.ts";
import { type MapContents, readFrontends } from "./installed-frontends.ts";

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
  const frontends = readFrontends(family, contents);
  for (const key of keys) {
    const frontend = frontends.get(key);
    if (frontend === undefined) return `frontend ${describeKey(key)} has no routes`;
    for (const word of frontend.words) {
      const { flags, run } = decodeRoute(word);
      if ((flags & 3) !== routeFlags.balance) continue;
      const bytes = runBytes(contents.endpoints, run);
      if (bytes === undefined || describeRun(bytes).length === 0) {
        return `frontend ${describeKey(key)} leads to a set without endpoints`;
      }
    }
  }
  return undefined;
}

/** Routes of a slot that is free are 0; so is a slot that was never used. */
function hasRoutes(slots: Buffer): boolean {
  for (let at = 0; at < slots.length; at += sizes.slot) {
    for (let index = 0; index < senders.length; index++) if (slots.readBigUInt64LE(at + index * 8) !== 0n) return true;
  }
  return false;
}
