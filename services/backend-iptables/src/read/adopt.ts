import type { ChainBody } from "../diff/desired-chains.ts";
import { type ChainId, splitChainId } from "../render/table.ts";
import { isSameRule } from "./canonical-rule.ts";

/**
 * Returns the rules that stand in our chains, in the words of `wanted` where they mean the same.
 *
 * So a program that starts where rules stand already rewrites only what differs, and one that looks again finds only what
 * somebody else has changed.
 *
 * Pure; O(rules).
 */
export function adoptChains(
  standing: ReadonlyMap<ChainId, readonly string[]>,
  wanted: ReadonlyMap<ChainId, ChainBody>,
): Map<ChainId, ChainBody> {
  const adopted = new Map<ChainId, ChainBody>();
  for (const [id, rules] of standing) {
    const body = wanted.get(id);
    const lineStart = `-A ${splitChainId(id).chain} `;
    const read = rules.map((text) => `${lineStart}${text}\n`).join("");
    adopted.set(id, body !== undefined && body !== read && isSameBody(rules, body, lineStart) ? body : read);
  }
  return adopted;
}

function isSameBody(rules: readonly string[], body: ChainBody, lineStart: string): boolean {
  const lines = body === "" ? [] : body.slice(0, -1).split("\n");
  return (
    lines.length === rules.length &&
    lines.every((line, at) => isSameRule(line.slice(lineStart.length), rules[at] ?? ""))
  );
}
