import type { ChainBody } from "../diff/desired-chains.ts";
import { type ChainId, splitChainId } from "../render/table.ts";
import { isSameRule } from "./canonical-rule.ts";

/**
 * Returns the rules that stand in our chains, in the words of `wanted` where they mean the same.
 *
 * So a program that starts where rules stand already rewrites only what differs, and one that looks again finds only what
 * somebody else has changed.
 *
 * Pure; O(chains + rules of those that are other texts).
 */
export function adoptChains(
  standing: ReadonlyMap<ChainId, ChainBody>,
  wanted: ReadonlyMap<ChainId, ChainBody>,
): Map<ChainId, ChainBody> {
  const adopted = new Map(standing);
  for (const [id, read] of standing) {
    const body = wanted.get(id);
    if (body === undefined || body === read) continue;
    if (isEachRule(id, read, body, isSameRule)) adopted.set(id, body);
  }
  return adopted;
}

/** True if two bodies of a chain have as many rules and `agree` says so of each two, which it gets without `-A CHAIN `. */
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
