import { diffChains } from "../diff/diff-chains.ts";
import { diffJumps } from "../diff/diff-jumps.ts";
import { transactionText } from "../diff/transaction-text.ts";
import { isSameRule } from "../read/canonical-rule.ts";
import { standingRules } from "../read/standing-rules.ts";

/**
 * Returns the transaction that removes every chain with our prefix and every jump to one; "" if there is none.
 *
 * `saved` is what iptables-save printed. Rules of others stay as they are.
 */
export function cleanupTransaction(saved: string, prefix: string): string {
  const standing = standingRules(saved, prefix);
  const { chains } = standing;
  const jumps = diffJumps(standing.jumps, new Map(), isSameRule);
  return transactionText(diffChains(chains, new Map(), chains.keys(), jumps));
}
