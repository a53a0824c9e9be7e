import { tables } from "../render/table.ts";
import type { RulesetChange, TableChange } from "./diff-chains.ts";

/**
 * Writes a change as the input of `iptables-restore --noflush`, a transaction for each table that it touches.
 *
 * A line `:CHAIN - [0:0]` makes a chain, or empties it if it stands; chains that are not named keep their rules. Order:
 * all such lines, so that a rule may jump to any chain; rules; jumps; `-X` of the chains that end, which nothing leads to
 * any more by then. Jumps come after the rules of what they lead to: iptables-legacy swaps the table as a whole and would
 * not care, but no other order is right for a reader.
 *
 * Returns "" for a change without content.
 */
export function transactionText(change: RulesetChange): string {
  return tables
    .map((table) => (isEmpty(change[table]) ? "" : `*${table}\n${tableLines(change[table])}COMMIT\n`))
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

function isEmpty({ puts, deletes, jumps }: TableChange): boolean {
  return puts.length + deletes.length + jumps.length === 0;
}

/** How many rules a change writes, for metrics: lines that begin with `-A`. */
export function countRules(bodies: Iterable<string>): number {
  let count = 0;
  for (const body of bodies) {
    for (let at = body.indexOf("\n"); at >= 0; at = body.indexOf("\n", at + 1)) count++;
  }
  return count;
}
