import { type ChainBody, type ChainId, splitChainId } from "../render/table.ts";
import { isSameRule } from "./canonical-rule.ts";

/**
 * Returns the installed chains, with the text of `wanted` for each chain whose rules mean the same.
 *
 * `IptablesRuleSet` and `diffFrame` call it on rules that were read, before `diffChains`. Separate from
 * `canonicalRule`, which decides about single rules: this function compares whole chains.
 *
 * iptables-save may print a rule differently from how it was written. Comparing the result with `wanted` as text finds
 * only real differences, so a restart rewrites only those, and a check for drift reports only changes by other
 * programs.
 *
 * Pure; O(chains + rules of the chains whose text differs).
 */
export function adoptChains(
  installed: ReadonlyMap<ChainId, ChainBody>,
  wanted: ReadonlyMap<ChainId, ChainBody>,
): Map<ChainId, ChainBody> {
  const adopted = new Map(installed);
  for (const [id, read] of installed) {
    const body = wanted.get(id);
    if (body === undefined || body === read) continue;
    if (isEachRule(id, read, body, isSameRule)) adopted.set(id, body);
  }
  return adopted;
}

/**
 * Whether two bodies of the same chain have equally many rules, and `agree` returns true for each pair of rules. It
 * gets the part of each rule that follows `-A CHAIN `.
 */
export function isEachRule(
  id: ChainId,
  a: ChainBody,
  b: ChainBody,
  agree: (ruleOfA: string, ruleOfB: string) => boolean,
): boolean {
  const ruleStart = `-A ${splitChainId(id).chain} `.length;
  const [left, right] = [a.split("\n"), b.split("\n")];
  return (
    left.length === right.length &&
    left.every((line, at) => agree(line.slice(ruleStart), (right[at] ?? "").slice(ruleStart)))
  );
}
