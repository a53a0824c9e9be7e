import { type ChainBody, type ChainId, chainId } from "../render/table.ts";
import type { RulesetChange, TableChange } from "./diff-chains.ts";

const nothing: TableChange = { puts: [], deletes: [], jumps: [] };

/** Kinds of chains that Services have, in an order in which each kind jumps only to earlier ones. */
const kinds = ["MARK-MASQ", "SVC-", "SVL-", "EXT-", "FW-"];

/**
 * Splits a large change into several transactions. Only the last one affects packets: the others create chains that no
 * rule jumps to yet. Separate from `transactionText`, which formats each of the parts.
 *
 * `IptablesRuleSet` calls it before each commit. For each rule, iptables-nft searches all new chains of its input, so
 * its time is quadratic: 10 000 chains in one transaction take several times as long as in transactions of `maxChains`.
 * A process that is killed between two transactions leaves unused chains, which the next start adopts.
 *
 * Do not split for iptables-legacy, which reads and writes the whole table in every transaction.
 *
 * Pure. A change with at most `maxChains` new chains is returned as it is.
 */
export function splitChange(
  change: RulesetChange,
  committed: ReadonlyMap<ChainId, ChainBody>,
  prefix: string,
  maxChains: number,
): readonly RulesetChange[] {
  const rank = (chain: string): number => kinds.findIndex((kind) => chain.startsWith(prefix + kind));
  const isEarly = (chain: string): boolean => rank(chain) >= 0 && !committed.has(chainId("nat", chain));
  const { puts } = change.nat;
  const early = puts.filter(({ chain }) => isEarly(chain)).sort((a, b) => rank(a.chain) - rank(b.chain));
  if (early.length <= maxChains) return [change];
  const pieces: RulesetChange[] = [];
  for (let at = 0; at < early.length; at += maxChains) {
    pieces.push({ filter: nothing, nat: { ...nothing, puts: early.slice(at, at + maxChains) } });
  }
  const late = puts.filter(({ chain }) => !isEarly(chain));
  return [...pieces, { ...change, nat: { ...change.nat, puts: late } }];
}
