import type { ChainNames } from "./chain-names.ts";
import { comment } from "./rule.ts";
import { type ChainId, chainId } from "./table.ts";

/** Number of the current layout of chains. Increase it when new fixed chains do not fit older chains of Services. */
const layout = 1;

/**
 * The chain whose only rule is the record of the rules: a text that says of which boot and which plans they are. No
 * packet reaches the chain.
 *
 * `putPlan` writes the record with `renderRecord`, and `findInstalledState` reads it after a restart with
 * `readRecord`. Both are in this file, so that they agree about the format.
 */
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
