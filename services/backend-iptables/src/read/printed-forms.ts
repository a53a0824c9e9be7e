import type { ChainBody, ChainId } from "../render/table.ts";
import { isEachRule } from "./adopt-chains.ts";
import { coreOfRule } from "./canonical-rule.ts";

/** A chain whose rules iptables-save prints differently from how they were written. */
export interface PrintedForm {
  /** The rules as written. */
  readonly body: ChainBody;
  /** The same rules as iptables-save of this node prints them. */
  readonly printed: ChainBody;
}

/**
 * Returns the chains that a repair proved to be correct, although iptables-save prints them differently.
 * `IptablesRuleSet` calls it after each repair that changed rules. Separate from `canonicalRule`, which knows in
 * advance how versions of iptables differ; this function learns it from the node.
 *
 * An unknown version of iptables may print the options of an extension in its own words. Without this list, each check
 * would "repair" such a chain again. But the text may also differ because another program changed the chain. Hence a
 * chain is in the result only under two conditions:
 *
 * - The repair did not change its text: it is printed after the repair as it was `found` before. This excludes a change
 *   that another program made once.
 * - Its rules agree with the wanted ones in everything that iptables itself prints; see {@link coreOfRule}. This
 *   excludes the changes of a program that undoes each of our repairs at once.
 *
 * All other differences are drift, which the next check finds and repairs.
 *
 * Pure. *Arguments:* our chains before the repair (`found`) and after it (`left`), and the wanted chains; the first two
 * are results of `adoptChains`.
 */
export function findPrintedForms(
  found: ReadonlyMap<ChainId, ChainBody>,
  left: ReadonlyMap<ChainId, ChainBody>,
  wanted: ReadonlyMap<ChainId, ChainBody>,
): Map<ChainId, PrintedForm> {
  const forms = new Map<ChainId, PrintedForm>();
  for (const [id, printed] of left) {
    const body = wanted.get(id);
    if (body === undefined || body === printed || found.get(id) !== printed) continue;
    const hasSameCore = isEachRule(id, printed, body, (a, b) => coreOfRule(a) === coreOfRule(b));
    if (hasSameCore) forms.set(id, { body, printed });
  }
  return forms;
}
