import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** Lines of iptables-save that are of chains with a prefix: the chains, their rules and the jumps to them. */
export function ownLines(saved: string, prefix: string): readonly string[] {
  const isOwn = new RegExp(`^(:${prefix}|-A ${prefix}|-A .* -[jg] ${prefix})`);
  let table = "";
  const lines: string[] = [];
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) table = line;
    else if (isOwn.test(line)) lines.push(`${table} ${line}`);
  }
  return lines;
}

/** The same of both families; `isSorted` leaves out in which order chains were made, which says nothing. */
export async function ownRules(world: TwoNodes, prefix: string): Promise<readonly string[]> {
  const { v4, v6 } = await world.rules();
  return [...byChain(ownLines(v4, prefix), "v4"), ...byChain(ownLines(v6, prefix), "v6")];
}

/**
 * Chains are printed in the order in which they were made, or by name, by version and variant. Rules of a chain keep
 * their order: a stable sort by table and chain.
 */
function byChain(lines: readonly string[], family: string): readonly string[] {
  const keyOf = (line: string) => line.split(" ").slice(0, 3).join(" ").replace(/ \[.*/, "");
  return lines
    .map((line) => ({ key: keyOf(line), line: `${family} ${line}` }))
    .toSorted((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0))
    .map(({ line }) => line);
}
