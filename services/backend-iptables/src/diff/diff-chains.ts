import { type ChainBody, type ChainId, splitChainId, type Table, tables } from "../render/table.ts";

/** What one table must go through; empty lists for a table that needs nothing. */
export interface TableChange {
  /** Chains with all the rules that they must have: new ones, and ones whose rules are others now. */
  readonly puts: readonly { readonly chain: string; readonly body: ChainBody }[];
  /** Chains that must be gone. */
  readonly deletes: readonly string[];
  /** Lines that put our jumps at the beginning of built-in chains, or take them away: `-I INPUT 1 …`, `-D INPUT …`. */
  readonly jumps: readonly string[];
}

export type RulesetChange = Readonly<Record<Table, TableChange>>;

/**
 * Returns what leads from the chains in the kernel to the wanted ones; looks at `ids` alone.
 *
 * Pure; O(ids). Equal chains give nothing.
 */
export function diffChains(
  committed: ReadonlyMap<ChainId, ChainBody>,
  wanted: ReadonlyMap<ChainId, ChainBody>,
  ids: Iterable<ChainId>,
  jumps: Readonly<Record<Table, readonly string[]>> = { filter: [], nat: [] },
): RulesetChange {
  const puts = { filter: [] as { chain: string; body: ChainBody }[], nat: [] as { chain: string; body: ChainBody }[] };
  const deletes = { filter: [] as string[], nat: [] as string[] };
  for (const id of ids) {
    const body = wanted.get(id);
    if (body === committed.get(id)) continue;
    const { table, chain } = splitChainId(id);
    if (body === undefined) deletes[table].push(chain);
    else puts[table].push({ chain, body });
  }
  const of = (table: Table): TableChange => ({ puts: puts[table], deletes: deletes[table], jumps: jumps[table] });
  return { filter: of("filter"), nat: of("nat") };
}

export function isEmptyChange(change: RulesetChange): boolean {
  return tables.every((table) => {
    const { puts, deletes, jumps } = change[table];
    return puts.length + deletes.length + jumps.length === 0;
  });
}
