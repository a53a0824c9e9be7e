import type { ChainBody } from "../diff/desired-chains.ts";
import { renderJumps } from "../render/jumps.ts";
import type { RenderOptions } from "../render/render-options.ts";
import { type ChainId, splitChainId, tables } from "../render/table.ts";

/** Writes the rules that kpng-iptables would have in the kernel as iptables-save would print them. */
export function ourRules(bodies: ReadonlyMap<ChainId, ChainBody>, options: RenderOptions): string {
  const declared = new Map(tables.map((table) => [table, [] as string[]]));
  const rules = new Map(tables.map((table) => [table, [] as string[]]));
  for (const [id, jumps] of renderJumps(options)) {
    const { table, chain } = splitChainId(id);
    for (const jump of jumps) rules.get(table)?.push(`-A ${chain} ${jump}\n`);
  }
  for (const [id, body] of bodies) {
    const { table, chain } = splitChainId(id);
    declared.get(table)?.push(`:${chain} - [0:0]\n`);
    rules.get(table)?.push(body);
  }
  return tables
    .map((table) => [`*${table}\n`, ...(declared.get(table) ?? []), ...(rules.get(table) ?? [])].join(""))
    .join("");
}
