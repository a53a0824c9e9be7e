import { readNumber } from "@kpng/model/byte-text.ts";
import { type ElementBytes, type ElementValue, type SharedSet, sharedSets, unpackSet } from "../layout/elements.ts";
import { BackendNftError } from "../netlink/netlink-socket.ts";
import type { NftablesConnection } from "../netlink/nftables-connection.ts";
import type { TableObjects } from "../netlink/read-objects.ts";
import type { TableId } from "../netlink/transaction.ts";
import { rangesPattern } from "../render/service-chains.ts";
import { ipOf, layoutChain } from "../render/skeleton.ts";

/**
 * Returns the chains and sets in our table, including those that other programs have added, but without anonymous sets;
 * undefined if the table does not exist. O(chains and sets of all tables of the family).
 *
 * Errors: TABLE_NOT_OURS if the table was created by another program or by a version with another layout; READ_FAILED.
 */
export async function readOwnObjects(connection: NftablesConnection, id: TableId): Promise<TableObjects | undefined> {
  const objects = await connection.listObjects(id);
  if (objects === undefined) return undefined;
  if (!objects.chains.includes(layoutChain)) {
    const table = `${ipOf(id.family)} ${id.name}`;
    throw new BackendNftError(
      "TABLE_NOT_OURS",
      `table ${table} exists without the chain ${layoutChain}, so this version of kpng did not make it: delete the table`,
    );
  }
  // A set whose name begins with "__" is anonymous; it belongs to one rule and is deleted with it.
  return { ...objects, sets: objects.sets.filter(({ name }) => !name.startsWith("__")) };
}

/** All that a table contains in the kernel; empty if it does not exist. */
export interface PresentTable {
  readonly objects: TableObjects;
  readonly rules: RulesByChain;
  readonly elements: InstalledElements;
}

/**
 * Reads all of a table. Takes about 10 µs per element, and yields to the event loop along the way.
 *
 * Errors: TABLE_NOT_OURS; READ_FAILED.
 */
export async function readTable(connection: NftablesConnection, id: TableId): Promise<PresentTable> {
  const objects = await readOwnObjects(connection, id);
  if (objects === undefined) {
    return { objects: { chains: [], hooks: new Map(), sets: [] }, rules: new Map(), elements: noElements };
  }
  const rules = await readRules(connection, id, objects);
  const elements: Record<SharedSet, ReadonlyMap<ElementBytes, ElementValue>> = { ...noElements };
  for (const set of sharedSets) {
    if (objects.sets.some(({ name }) => name === set)) elements[set] = await connection.readElements(id, set);
  }
  return { objects, rules, elements };
}

/** The elements of all shared sets of a table in the kernel. */
export type InstalledElements = Readonly<Record<SharedSet, ReadonlyMap<ElementBytes, ElementValue>>>;

/** The elements of a table that does not exist. */
export const noElements: InstalledElements = Object.fromEntries(sharedSets.map((set) => [set, new Map()])) as Record<
  SharedSet,
  Map<ElementBytes, ElementValue>
>;

/**
 * Returns the slot values of each endpoint set, in slot order, keyed by the id of the set. Sets with a gap between
 * their slots are left out, because `EndpointSets` cannot adopt them.
 */
export function slotsById(slots: ReadonlyMap<ElementBytes, ElementValue>): Map<number, readonly ElementBytes[]> {
  const slotsOfId = new Map<number, ElementBytes[]>();
  for (const [key, endpoint] of slots) {
    const { id } = unpackSet(readNumber(key));
    const slots = slotsOfId.get(id) ?? [];
    slots[readNumber(key, 4)] = endpoint;
    slotsOfId.set(id, slots);
  }
  for (const [id, slots] of slotsOfId) {
    if (slots.length !== Object.keys(slots).length) slotsOfId.delete(id);
  }
  return slotsOfId;
}

/** Returns the ids of all endpoint sets that have slots, including sets with a gap between their slots. */
export function idsOfSlots(slots: ReadonlyMap<ElementBytes, ElementValue>): ReadonlySet<number> {
  return new Set(slots.keys().map((key) => unpackSet(readNumber(key)).id));
}

/**
 * The rules of each non-empty chain, keyed by its name, as `readRules` returns them. The hook of a base chain counts as
 * its first rule (see `TableObjects`).
 */
export type RulesByChain = ReadonlyMap<string, readonly string[]>;

/**
 * Returns the names of chains whose rules differ, in alphabetical order. Elements of sets are compared by
 * `ElementTable` instead.
 */
export function compareRules(a: RulesByChain, b: RulesByChain): readonly string[] {
  const names = [...new Set([...a.keys(), ...b.keys()])].sort();
  return names.filter((name) => a.get(name)?.join("\n") !== b.get(name)?.join("\n"));
}

/**
 * Returns the names of chains that have another hook or a different number of rules in `commands` than in the kernel.
 * The rules themselves cannot be compared, because the kernel lists them in another form. As in {@link readRules}, the
 * elements of a set of source ranges count as one more rule of the chain with the same name.
 */
export function differentChains(commands: string, rules: RulesByChain): readonly string[] {
  const desired = new Map<string, { readonly count: number; readonly hook: string | undefined }>();
  const additions = /^add (?:rule|element|chain(?=.* \{)) \S+ \S+ (\S+)(?: \{ (type .*) \}$)?/gm;
  for (const [, name = "", hook] of commands.matchAll(additions)) {
    const before = desired.get(name);
    desired.set(name, { count: (before?.count ?? 0) + 1, hook: before?.hook ?? hook });
  }
  return [...desired].flatMap(([name, { count, hook }]) => {
    const installed = rules.get(name) ?? [];
    return installed.length === count && (hook ?? installed[0]) === installed[0] ? [] : [name];
  });
}

/**
 * Reads the hook and rules of each chain. The contents of a set of source ranges are included in the rules of the chain
 * with the same name, so that a changed range counts as a changed rule. `objects` are those of the table, if the caller
 * has just read them.
 *
 * Errors: READ_FAILED.
 */
export async function readRules(
  connection: NftablesConnection,
  id: TableId,
  objects?: Pick<TableObjects, "hooks">,
): Promise<RulesByChain> {
  const { hooks = [] } = objects ?? (await connection.listObjects(id)) ?? {};
  const rules = new Map(await connection.readChains(id));
  const withSets = [...rules].filter(([chain, texts]) => rangesPattern.test(chain) && texts.join("").includes(chain));
  for (const [chain, texts] of withSets) {
    const elements = [...(await connection.readElements(id, chain)).keys()];
    if (elements.length === 0) continue;
    rules.set(chain, [...texts, Buffer.from(elements.sort().join(" "), "latin1").toString("hex")]);
  }
  for (const [chain, hook] of hooks) rules.set(chain, [hook, ...(rules.get(chain) ?? [])]);
  return rules;
}
