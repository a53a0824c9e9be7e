import { type ChainBody, type ChainId, splitChainId, type Table, tables } from "../render/table.ts";

/** Changes of one table. All lists are empty if nothing changes. */
export interface TableChange {
  /** New chains and chains whose rules changed, each with all its rules. */
  readonly puts: readonly { readonly chain: string; readonly body: ChainBody }[];
  /** Names of chains to delete. */
  readonly deletes: readonly string[];
  /** Lines that insert our jumps at the beginning of built-in chains, or delete them: `-I INPUT 1 …`, `-D INPUT …`. */
  readonly jumps: readonly string[];
}

/** Changes of all tables of one family. `transactionText` turns them into the input of iptables-restore. */
export type RulesetChange = Readonly<Record<Table, TableChange>>;

/**
 * Returns the changes that turn the chains in the kernel into the wanted chains. It compares only the chains in `ids`.
 *
 * `IptablesRuleSet` calls it in each sync and repair, `diffFrame` for the fixed chains alone, `cleanupTransaction` with
 * no wanted chains; it is separate, because all three need it. `committed` are the chains in the kernel. Jumps from
 * built-in chains, where rules of other programs must stay, are compared by `diffJumps`; its result is passed in.
 *
 * Chains in `busy` are not deleted but emptied: a chain of another program jumps to them, and the kernel would refuse
 * the deletion together with all other changes of the table. Default: no chain. A later call deletes them, when nothing
 * jumps to them.
 *
 * Pure; O(ids). Equal chains cause no change.
 */
export function diffChains(
  committed: ReadonlyMap<ChainId, ChainBody>,
  wanted: ReadonlyMap<ChainId, ChainBody>,
  ids: Iterable<ChainId>,
  jumps: Readonly<Record<Table, readonly string[]>> = { filter: [], nat: [] },
  busy: Pick<ReadonlySet<ChainId>, "has"> = new Set<ChainId>(),
): RulesetChange {
  const puts = { filter: [] as { chain: string; body: ChainBody }[], nat: [] as { chain: string; body: ChainBody }[] };
  const deletes = { filter: [] as string[], nat: [] as string[] };
  for (const id of ids) {
    const body = wanted.get(id) ?? (busy.has(id) ? "" : undefined);
    if (body === committed.get(id)) continue;
    const { table, chain } = splitChainId(id);
    if (body === undefined) deletes[table].push(chain);
    else puts[table].push({ chain, body });
  }
  const of = (table: Table): TableChange => ({ puts: puts[table], deletes: deletes[table], jumps: jumps[table] });
  return { filter: of("filter"), nat: of("nat") };
}

/** Whether a change of all tables has no effect. */
export function isEmptyChange(change: RulesetChange): boolean {
  return tables.every((table) => isEmptyTable(change[table]));
}

/** Whether a change of one table has no effect. */
export function isEmptyTable({ puts, deletes, jumps }: TableChange): boolean {
  return puts.length + deletes.length + jumps.length === 0;
}
