import type { ElementBytes, ElementValue } from "../layout/element-keys.ts";
import { readNumber } from "../layout/element-keys.ts";
import { unpackSet } from "../layout/packed-set.ts";
import { dataOf, type SharedSet, sharedSets } from "../layout/set-names.ts";
import type { TableId } from "../netlink/element-batch.ts";
import type { TableConnection } from "../netlink/table-connection.ts";

/** The elements of all shared sets of a table, as the kernel has them. */
export type ActualElements = Readonly<Record<SharedSet, ReadonlyMap<ElementBytes, ElementValue>>>;

/** The elements of a table that does not exist. */
export const noElements: ActualElements = Object.fromEntries(sharedSets.map((set) => [set, new Map()])) as Record<
  SharedSet,
  Map<ElementBytes, ElementValue>
>;

/**
 * Reads the elements of all shared sets; a set that is not among `existing` counts as empty. O(elements); about 10 µs
 * for each, with turns for the event loop. `NftTable` calls it in full syncs and repairs, `PrintedRuleSet` for
 * `--dry-run` and `--diff`, `NftRuleSet` to find damage. `ElementTable` then compares them with the wanted elements.
 *
 * Errors: READ_FAILED, e.g. if the table does not exist any more.
 */
export async function readElements(
  connection: TableConnection,
  table: TableId,
  existing: ReadonlySet<SharedSet>,
): Promise<ActualElements> {
  const read: Record<SharedSet, ReadonlyMap<ElementBytes, ElementValue>> = { ...noElements };
  for (const set of existing) {
    read[set] = await connection.readElements(table, set, dataOf[set] === "comment" ? "comment" : "data");
  }
  return read;
}

/**
 * Returns the values of each endpoint set's slots, by the id of the set, in order; sets with an empty slot in between
 * are left out. `fillElements` hands them to `ServiceElements`, which keeps the slots of an earlier run.
 */
export function slotsById(slots: ReadonlyMap<ElementBytes, ElementValue>): Map<number, readonly ElementBytes[]> {
  const found = new Map<number, ElementBytes[]>();
  for (const [key, endpoint] of slots) {
    const { id } = unpackSet(readNumber(key));
    const held = found.get(id) ?? [];
    held[readNumber(key, 4)] = endpoint;
    found.set(id, held);
  }
  for (const [id, held] of found) {
    if (held.length !== Object.keys(held).length) found.delete(id);
  }
  return found;
}

/** Returns the ids of all endpoint sets that have slots, also of those with an empty slot in between. */
export function idsOfSlots(slots: ReadonlyMap<ElementBytes, ElementValue>): ReadonlySet<number> {
  return new Set(slots.keys().map((key) => unpackSet(readNumber(key)).id));
}
