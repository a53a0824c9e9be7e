import { type ChainId, chainId, splitChainId } from "../render/table.ts";
import type { InstalledRules } from "./installed-rules.ts";

/** Chains of single Services, and buckets of their rules. Every release gives them rules and leads to them. */
const serviceChain = /^(?:SVC|SVL|EXT|FW|IP|NP)-/;

/**
 * Returns a sign that packets to Services get lost: a chain of a Service that our rules jump to although it has no
 * rules, or a chain with rules that no rule jumps to. Undefined if there is no such sign. Pure; O(rules).
 *
 * `IptablesRuleSet` calls it while it keeps the rules of an earlier run, before the first complete view. Separate from
 * `diffChains`, which finds all damage, but only by comparison with the view.
 */
export function findDamage({ chains }: Pick<InstalledRules, "chains">, prefix: string): string | undefined {
  const reached = new Set<ChainId>();
  for (const [id, body] of chains) {
    const { table } = splitChainId(id);
    for (const [, target = ""] of body.matchAll(/ -[jg] (\S+)/g)) reached.add(chainId(table, target));
  }
  for (const [id, body] of chains) {
    const { chain } = splitChainId(id);
    // A chain without rules that is not reached may wait for another program's jump to go before it is deleted.
    if (!serviceChain.test(chain.slice(prefix.length)) || (body !== "") === reached.has(id)) continue;
    return body === "" ? `chain ${chain} has no rules` : `no rule leads to chain ${chain}`;
  }
  return undefined;
}
