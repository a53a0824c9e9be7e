import { builtInChains } from "../render/jumps.ts";
import { type ChainId, chainId, type Table } from "../render/table.ts";

/** What of ours stands in the kernel, in one family. */
export interface StandingRules {
  /** Our chains with their rules, each what follows `-A CHAIN `. */
  readonly chains: ReadonlyMap<ChainId, readonly string[]>;
  /** Our jumps in built-in chains, in their order. */
  readonly jumps: ReadonlyMap<ChainId, readonly string[]>;
}

/**
 * Finds what is ours in the output of iptables-save: chains that begin with `prefix`, and the rules of built-in chains
 * that jump to one.
 *
 * Pure; one pass, in which the lines of others cost next to nothing: on a node where kube-proxy runs too they are many.
 */
export function parseSave(text: string, prefix: string): StandingRules {
  const chains = new Map<ChainId, string[]>();
  const jumps = new Map<ChainId, string[]>();
  let table: Table | undefined;
  for (let start = 0; start < text.length; ) {
    const found = text.indexOf("\n", start);
    const end = found < 0 ? text.length : found;
    const first = text[start];
    if (first === "*") {
      const name = text.slice(start + 1, end);
      table = name === "nat" || name === "filter" ? name : undefined;
    } else if (table !== undefined && first === ":" && text.startsWith(prefix, start + 1)) {
      chains.set(chainId(table, text.slice(start + 1, text.indexOf(" ", start))), []);
    } else if (table !== undefined && text.startsWith("-A ", start)) {
      const blank = text.indexOf(" ", start + 3);
      if (text.startsWith(prefix, start + 3)) {
        const chain = text.slice(start + 3, blank > end || blank < 0 ? end : blank);
        chains.get(chainId(table, chain))?.push(text.slice(start + 4 + chain.length, end));
      } else addJump(table, text.slice(start + 3, end));
    }
    start = end + 1;
  }
  return { chains, jumps };

  function addJump(inTable: Table, rule: string): void {
    const chain = rule.slice(0, rule.indexOf(" "));
    const target = / -[jg] (\S+)/.exec(rule)?.[1];
    if (target?.startsWith(prefix) !== true || !builtInChains[inTable].includes(chain)) return;
    const id = chainId(inTable, chain);
    const rules = jumps.get(id) ?? [];
    rules.push(rule.slice(chain.length + 1));
    jumps.set(id, rules);
  }
}
