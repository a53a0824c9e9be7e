import { type ChainId, splitChainId, type Table } from "../render/table.ts";

/**
 * Returns the lines that give each built-in chain exactly our jumps in our order, at its beginning.
 *
 * Where they stand as they should they are left, wherever that is: other programs put their own jumps first too, and
 * would be fought with for ever. Where one is missing, doubled, or in the wrong order, all are taken out and put in anew.
 */
export function diffJumps(
  standing: ReadonlyMap<ChainId, readonly string[]>,
  wanted: ReadonlyMap<ChainId, readonly string[]>,
  isSameRule: (a: string, b: string) => boolean,
): Readonly<Record<Table, readonly string[]>> {
  const lines = { filter: [] as string[], nat: [] as string[] };
  for (const id of new Set([...standing.keys(), ...wanted.keys()])) {
    const [have, want] = [standing.get(id) ?? [], wanted.get(id) ?? []];
    if (have.length === want.length && have.every((rule, at) => isSameRule(rule, want[at] ?? ""))) continue;
    const { table, chain } = splitChainId(id);
    lines[table].push(...have.map((rule) => `-D ${chain} ${rule}`));
    // Each goes to the first place, so the last one written is met first.
    lines[table].push(...want.toReversed().map((rule) => `-I ${chain} 1 ${rule}`));
  }
  return lines;
}
