import type { ChainBody } from "../diff/desired-chains.ts";
import type { ChainId } from "../render/table.ts";
import { isEachRule } from "./adopt.ts";
import { coreOfRule } from "./canonical-rule.ts";

/** A chain as we write it, and the other words in which the tool of this node prints it. */
export interface PrintedForm {
  readonly body: ChainBody;
  readonly printed: ChainBody;
}

/**
 * Returns the chains that a repair has shown to be right although iptables-save normalizes them.
 *
 * An iptables that we do not know may have words of its own for an extension; its chains would be "repaired" for ever. But
 * what is read back after a repair may also be what somebody else has made of it since, and that must not be taken for
 * ours. So a chain counts only if writing it changed nothing: it is printed after as it was `found` before. A change that
 * came in between shows in that. One that comes each time, from a program that undoes our rules as soon as they stand,
 * does not, so the rules must also agree with ours in all that iptables itself prints; see {@link coreOfRule}.
 *
 * All else is drift, which the next look finds and repairs.
 *
 * Pure. *Arguments:* our chains before the repair and after, and the wanted ones, all after `adoptChains`.
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
