/** Maximum length of the part of a transaction that is kept for inspection, in characters. */
export const maxTransactionLength = 64 * 1024;

/**
 * Returns the start of a committed text, at most {@link maxTransactionLength}, which a `RuleChange` keeps for
 * inspection. It is a copy: a substring would keep the whole text in memory, many megabytes after a full sync.
 *
 * The backends iptables, ipvs, userspace and ebpf share it; they call it where they make their `RuleChange`.
 * `makeNftChange` formats no more than that length and needs no copy.
 */
export function transactionStart(text: string): string {
  return Buffer.from(text.slice(0, maxTransactionLength)).toString();
}
