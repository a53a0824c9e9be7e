import { isSameRule } from "../read/canonical-rule.ts";
import { type ChainId, splitChainId, type Table } from "../render/table.ts";

/**
 * Returns the transaction lines after which each built-in chain has exactly the wanted jumps, in the wanted order.
 *
 * `IptablesRuleSet` calls it when it compares all rules, `diffFrame` when it repairs only the frame, and
 * `cleanupTransaction` to remove jumps. Separate from `diffChains`, which rewrites whole chains: a built-in chain also
 * has rules of other programs, which must stay.
 *
 * If a chain has exactly the wanted jumps, they stay where they are, even behind rules of other programs: another
 * program that also wants to be first would move its rules again after each of our moves. If a jump is missing, is
 * there twice or is in the wrong order, all are deleted and inserted again at the beginning of the chain.
 */
export function diffJumps(
  installed: ReadonlyMap<ChainId, readonly string[]>,
  wanted: ReadonlyMap<ChainId, readonly string[]>,
): Readonly<Record<Table, readonly string[]>> {
  const lines = { filter: [] as string[], nat: [] as string[] };
  for (const id of new Set([...installed.keys(), ...wanted.keys()])) {
    const [have, want] = [installed.get(id) ?? [], wanted.get(id) ?? []];
    if (have.length === want.length && have.every((rule, at) => isSameRule(rule, want[at] ?? ""))) continue;
    const { table, chain } = splitChainId(id);
    lines[table].push(...have.map((rule) => `-D ${chain} ${rule}`));
    // Each line inserts its jump at the beginning, so the last line inserts the first jump.
    lines[table].push(...want.toReversed().map((rule) => `-I ${chain} 1 ${rule}`));
  }
  return lines;
}
