import { tables } from "../render/table.ts";
import { isEmptyTable, type RulesetChange, type TableChange } from "./diff-chains.ts";

/**
 * Returns a change as input of `iptables-restore --noflush`: one transaction for each table that changes, "" for none.
 *
 * `IptablesRuleSet` calls it for each commit, `cleanupTransaction` for `--cleanup`. Separate from `diffChains`, because
 * a large change is first divided by `splitChange`.
 *
 * A line `:CHAIN - [0:0]` creates a chain, or removes all rules of an existing one. Chains that are not named keep
 * their rules. The order of the lines:
 *
 * 1. these lines for all chains, so that a rule may jump to any of them,
 * 2. rules,
 * 3. jumps from built-in chains; the chains that they lead to are complete by now,
 * 4. `-X CHAIN` for deleted chains, to which nothing jumps any more.
 */
export function transactionText(change: RulesetChange): string {
  return tables
    .map((table) => (isEmptyTable(change[table]) ? "" : `*${table}\n${tableLines(change[table])}COMMIT\n`))
    .join("");
}

function tableLines({ puts, deletes, jumps }: TableChange): string {
  const declare = (chain: string): string => `:${chain} - [0:0]\n`;
  return [
    ...puts.map(({ chain }) => declare(chain)),
    ...deletes.map(declare),
    ...puts.map(({ body }) => body),
    ...jumps.map((line) => `${line}\n`),
    ...deletes.map((chain) => `-X ${chain}\n`),
  ].join("");
}

/** Counts the rules of chains, for metrics and inspection. */
export function countRules(bodies: Iterable<string>): number {
  let count = 0;
  for (const body of bodies) {
    for (let at = body.indexOf("\n"); at >= 0; at = body.indexOf("\n", at + 1)) count++;
  }
  return count;
}
