import { type ChainBody, type ChainId, chainId } from "../render/table.ts";
import type { RulesetChange, TableChange } from "./diff-chains.ts";

const nothing: TableChange = { puts: [], deletes: [], jumps: [] };

/** Chains of Services, and what they jump to, in an order in which each jumps to earlier ones alone. */
const kinds = ["MARK-MASQ", "SVC-", "SVL-", "EXT-", "FW-"];

/**
 * Splits a very large change into transactions, the last of which alone has an effect on packets.
 *
 * The others make new chains that no rule leads to yet. iptables-nft compares each rule's chain with the names of all that
 * its input makes, so its time grows with the square of the input: 10 000 chains take several times as long in one
 * piece as in pieces of `maxChains`. Killed between two pieces, chains are left that nothing leads to; the next
 * start adopts them. iptables-legacy reads and writes the whole table each time and must not be given pieces.
 *
 * Pure. A change of at most `maxChains` new chains stays as it is.
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
