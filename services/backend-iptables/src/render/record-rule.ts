import type { ChainNames } from "./chain-names.ts";
import { comment } from "./rule.ts";
import { type ChainId, chainId } from "./table.ts";

/** Number of the current layout of chains; a version whose fixed chains do not fit older Service chains has another. */
const layout = 1;

/** The chain whose only rule is the record of the rules. No packet reaches it. */
export function recordChain(names: ChainNames): ChainId {
  return chainId("nat", names.fixed("RECORD"));
}

/** Returns the rule that stores a record; `readRecord` is the reverse. */
export function renderRecord(record: string): string {
  return comment(`kpng layout ${layout}; ${record}`);
}

/** Returns the record in the rules of the record chain; undefined if there is none, or one of another layout. */
export function readRecord(body: string): string | undefined {
  const [, number, record] = /--comment "kpng layout (\d+); ([^"]*)"/.exec(body) ?? [];
  return number === String(layout) ? record : undefined;
}
