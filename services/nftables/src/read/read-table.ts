import type { InstalledState } from "@kpng/backend-kit/proxy/rule-set.ts";
import {
  dataOf,
  type ElementBytes,
  type ElementValue,
  numberBytes,
  packed,
  readNumber,
  recordKey,
  type SharedSet,
  sharedSets,
  unpackSet,
} from "../layout/elements.ts";
import { BackendNftError } from "../netlink/netlink-socket.ts";
import type { NftablesConnection } from "../netlink/nftables-connection.ts";
import type { TableObjects } from "../netlink/read-objects.ts";
import type { TableId } from "../netlink/transaction.ts";
import { rangesPattern } from "../render/service-chains.ts";
import { firstHook, ipOf, layoutChain } from "../render/skeleton.ts";

/** Objects of our table, those that other programs have added included; without anonymous sets. */
export interface OwnObjects extends TableObjects {
  /** Existing sets and maps that all Services share. */
  readonly shared: ReadonlySet<SharedSet>;
}

/**
 * Returns the chains and sets of our table, and which of the shared sets exist; undefined if the table does not exist.
 * O(chains and sets of all tables of the family).
 *
 * Elements are read by `readElements`.
 *
 * Errors: TABLE_NOT_OURS if another program, or a version with another layout, has made the table; READ_FAILED.
 */
export async function readOwnObjects(connection: NftablesConnection, id: TableId): Promise<OwnObjects | undefined> {
  const objects = await connection.listObjects(id);
  if (objects === undefined) return undefined;
  if (!objects.chains.includes(layoutChain)) {
    const table = `${ipOf(id.family)} ${id.name}`;
    throw new BackendNftError("TABLE_NOT_OURS", `table ${table} exists without the chain ${layoutChain}: delete it`);
  }
  return {
    chains: objects.chains,
    // A rule's own set; it goes with the rule.
    sets: objects.sets.filter(({ name }) => !name.startsWith("__")),
    shared: new Set(sharedSets.filter((shared) => objects.sets.some(({ name }) => name === shared))),
  };
}

/** The elements of all shared sets of a table, as the kernel has them. */
export type ActualElements = Readonly<Record<SharedSet, ReadonlyMap<ElementBytes, ElementValue>>>;

/** The elements of a table that does not exist. */
export const noElements: ActualElements = Object.fromEntries(sharedSets.map((set) => [set, new Map()])) as Record<
  SharedSet,
  Map<ElementBytes, ElementValue>
>;

/**
 * Reads the elements of all shared sets; a set that is not among `existing` counts as empty. O(elements); about 10 µs
 * for each, with turns for the event loop. `ElementTable` then compares them with the wanted elements.
 *
 * Errors: READ_FAILED, e.g. if the table does not exist any more.
 */
export async function readElements(
  connection: NftablesConnection,
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
 * are left out.
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

/** The rules of each chain that has any, as `readRules` returns them. */
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
 * Reads the rules of each chain, and with them the contents of the sets of source ranges, so that a changed range
 * counts as a changed rule of the chain with the same name.
 *
 * Errors: READ_FAILED.
 */
export async function readRules(connection: NftablesConnection, id: TableId): Promise<RulesByChain> {
  const rules = new Map(await connection.readChains(id));
  const withSets = [...rules].filter(([chain, texts]) => rangesPattern.test(chain) && texts.join("").includes(chain));
  for (const [chain, texts] of withSets) {
    const elements = [...(await connection.readElements(id, chain)).keys()];
    rules.set(chain, [...texts, Buffer.from(elements.sort().join(" "), "latin1").toString("hex")]);
  }
  return rules;
}

/**
 * Reads which rules an earlier run has left in our table: "marked" with the record of these rules, "unmarked" without
 * one, or "absent". A table with a record counts even if its hooks are missing, because these can be restored.
 *
 * The layout of the table is not part of the record: a table of another layout is refused.
 *
 * Errors: READ_FAILED, TABLE_NOT_OURS.
 */
export async function readInstalledState(connection: NftablesConnection, id: TableId): Promise<InstalledState> {
  const objects = await readOwnObjects(connection, id);
  if (objects === undefined) return { kind: "absent" };
  const hasRecords = objects.shared.has("record");
  const record = hasRecords ? (await connection.readElements(id, "record", "comment")).get(recordKey) : undefined;
  if (record !== undefined) return { kind: "marked", record };
  return { kind: (await readRules(connection, id)).has(firstHook) ? "unmarked" : "absent" };
}

/** Chains on the way of every packet to a Service. Every release gives them rules. */
const essentialChains = [firstHook, "nat_output", "services", "balance_frontends", "pick"];

const frontendMaps: readonly SharedSet[] = ["frontends", "local_frontends", "nodeports", "local_nodeports"];

/**
 * Returns a sign that packets to Services get lost, whichever Services the table is for: a chain without rules on the
 * way of every packet, a frontend that leads to no endpoint, or endpoints without any frontend. Undefined if there is
 * no such sign. Pure; O(elements).
 *
 * Other damage is found only by a comparison with a view.
 */
export function findDamage(rules: RulesByChain, elements: ActualElements): string | undefined {
  const empty = essentialChains.find((name) => (rules.get(name)?.length ?? 0) === 0);
  if (empty !== undefined) return `chain ${empty} has no rules`;
  const { slots, sticky_slots, sticky_sets, picks } = elements;
  const hasFrontends = frontendMaps.some((map) => elements[map].size > 0);
  if (!hasFrontends && slots.size + sticky_slots.size > 0) return "there are endpoints and no frontends";
  for (const map of frontendMaps) {
    for (const value of elements[map].values()) {
      const { id, count } = unpackSet(readNumber(value));
      const key = numberBytes(id * packed.firstId);
      // With affinity, a chain of the set chooses among the slots.
      const isComplete =
        count === 0
          ? sticky_sets.has(key) && sticky_slots.has(key + numberBytes(0))
          : picks.has(numberBytes(count)) && slots.has(key + numberBytes(0)) && slots.has(key + numberBytes(count - 1));
      if (!isComplete) return `map ${map} leads to set ${id}, which has no endpoint`;
    }
  }
  return undefined;
}
