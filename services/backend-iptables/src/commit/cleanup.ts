import { diffChains } from "../diff/diff-chains.ts";
import { diffJumps } from "../diff/diff-jumps.ts";
import { transactionText } from "../diff/transaction-text.ts";
import { adoptChains } from "../read/adopt.ts";
import { isSameRule } from "../read/canonical-rule.ts";
import { parseSave } from "../read/parse-save.ts";

/**
 * Returns the transaction that removes every chain with our prefix and every jump to one; "" if there is none.
 *
 * `saved` is what iptables-save printed. Rules of others stay as they are.
 */
export function cleanupTransaction(saved: string, prefix: string): string {
  const standing = parseSave(saved, prefix);
  const chains = adoptChains(standing.chains, new Map());
  const jumps = diffJumps(standing.jumps, new Map(), isSameRule);
  return transactionText(diffChains(chains, new Map(), chains.keys(), jumps));
}
