import { diffChains } from "../diff/diff-chains.ts";
import { diffJumps } from "../diff/diff-jumps.ts";
import { transactionText } from "../diff/transaction-text.ts";
import { findInstalledRules } from "../read/installed-rules.ts";
import { splitChainId } from "../render/table.ts";

/** Changes that `--cleanup` makes to one family. */
export interface Cleanup {
  /** Input of iptables-restore; "" if nothing is to be removed. */
  readonly transaction: string;
  /** Our chains that stay, empty, because a chain of another program jumps to them. *Shape:* `KPNG-A (from USER)`. */
  readonly kept: readonly string[];
}

/**
 * Returns the transaction that removes all chains with our prefix and all jumps to them, for `--cleanup`. Other rules
 * stay as they are. `removeRules` calls it for each family and variant of iptables, and runs the transaction. Separate
 * from `removeRules`, which runs tools, because this function is pure.
 *
 * `saved` is the output of iptables-save. If `keepsGuard` is true, the chain that guards 127.0.0.1 and the jumps to it
 * stay. The caller passes true if it cannot reset the sysctl route_localnet: with this sysctl and without the guard,
 * hosts next to the node could reach services on 127.0.0.1.
 */
export function cleanupTransaction(saved: string, prefix: string, keepsGuard = false): Cleanup {
  const { chains, jumps, busy } = findInstalledRules(saved, prefix);
  const guard = `${prefix}LOCALNET`;
  const keptJumps = new Map(
    [...jumps].map(([id, rules]) => [id, keepsGuard ? rules.filter((rule) => rule.endsWith(` -j ${guard}`)) : []]),
  );
  const removed = [...chains.keys()].filter((id) => !keepsGuard || splitChainId(id).chain !== guard);
  return {
    transaction: transactionText(diffChains(chains, new Map(), removed, diffJumps(jumps, keptJumps), busy)),
    kept: removed.flatMap((id) => (busy.has(id) ? [`${splitChainId(id).chain} (from ${busy.get(id)})`] : [])),
  };
}
