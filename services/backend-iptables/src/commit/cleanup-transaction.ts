import { diffChains } from "../diff/diff-chains.ts";
import { diffJumps } from "../diff/diff-jumps.ts";
import { transactionText } from "../diff/transaction-text.ts";
import { isSameRule } from "../read/canonical-rule.ts";
import { findInstalledRules } from "../read/installed-rules.ts";
import { splitChainId } from "../render/table.ts";

/**
 * Returns the transaction that removes all chains with our prefix and all jumps to them, for `--cleanup`; "" if there
 * are none. Other rules stay as they are.
 *
 * `saved` is the output of iptables-save. With `keepsGuard`, the chain that guards 127.0.0.1 and the jumps to it stay.
 */
export function cleanupTransaction(saved: string, prefix: string, keepsGuard = false): string {
  const { chains, jumps } = findInstalledRules(saved, prefix);
  const guard = `${prefix}LOCALNET`;
  const kept = new Map(
    [...jumps].map(([id, rules]) => [id, keepsGuard ? rules.filter((rule) => rule.endsWith(` -j ${guard}`)) : []]),
  );
  const removed = [...chains.keys()].filter((id) => !keepsGuard || splitChainId(id).chain !== guard);
  return transactionText(diffChains(chains, new Map(), removed, diffJumps(jumps, kept, isSameRule)));
}
