import type { Snapshot } from "../store/snapshot.ts";
import type { Item } from "./item.ts";
import { digestOf, freshDigestOf } from "./item-digests.ts";
import { ownServices } from "./own-services.ts";
import { type ServiceItems, serviceItemsDigest, xorOfDigests } from "./service-items.ts";
import { classItems, itemsOfUnit, type NodeUnit, nodeUnit, serviceFor } from "./service-units.ts";
import type { ViewTarget } from "./view-target.ts";

/** A Service that has endpoints of a node's own. */
export interface OwnUnit {
  /** As the node's audience is told it. */
  readonly shared: ServiceItems;
  /** As the node is. */
  readonly unit: NodeUnit;
}

/**
 * Returns what a node is told otherwise than its audience. Nothing of it is remembered: a thousand nodes that come at
 * once would leave it all behind.
 *
 * *Cost:* the node's own endpoints.
 */
export function ownUnits(snapshot: Snapshot, target: ViewTarget): readonly OwnUnit[] {
  const keys = ownServices(snapshot, target.node.name);
  return [...keys].flatMap((key) => ownUnitAt(snapshot, key, target, false) ?? []);
}

/** Undefined if the node is told nothing of what is at the key. */
export function ownUnitAt(
  snapshot: Snapshot,
  key: string,
  { node, viewClass }: ViewTarget,
  isKept: boolean,
): OwnUnit | undefined {
  const state = serviceFor(snapshot, key, viewClass);
  if (state === undefined) return undefined;
  return { shared: classItems(state, viewClass), unit: nodeUnit(state, node, viewClass.isExtended, isKept) };
}

/** What distinguishes the digest of the node's view from that of its audience's. `isKept` as when the unit was made. */
export function ownDigest({ shared, unit: { base, hidden, own } }: OwnUnit, isKept: boolean): bigint {
  const bases = base === shared ? 0n : serviceItemsDigest(base) ^ serviceItemsDigest(shared);
  const digest = isKept ? digestOf : freshDigestOf;
  return own.reduce((sum, item) => sum ^ digest(item).hash, bases ^ xorOfDigests(hidden));
}

/** The items that the audience is told and the node is not, and those that it is told in their place. */
export function ownItems({ shared, unit }: OwnUnit): {
  readonly hidden: readonly Item[];
  readonly own: readonly Item[];
} {
  if (unit.base === shared) return unit;
  const told = new Set(shared.items);
  const wanted = new Set(itemsOfUnit(unit));
  return {
    hidden: shared.items.filter((item) => !wanted.has(item)),
    own: [...wanted].filter((item) => !told.has(item)),
  };
}
