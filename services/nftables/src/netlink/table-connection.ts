import type { ElementBytes, ElementValue } from "../layout/element-keys.ts";
import type { BatchStep, TableId } from "./element-batch.ts";
import type { TableObjects } from "./read-objects.ts";

/**
 * Reads and changes tables of nftables. `NftTable`, `PrintedRuleSet` and the readers in `read/` use it, and
 * `openConnection` chooses which of two it is: `NftablesConnection` speaks netlink itself, and `NftToolConnection` runs
 * the program nft where netlink sockets cannot be opened. Both lead to the same elements and rules.
 *
 * One call at a time.
 */
export interface TableConnection {
  /** Largest transaction, in bytes as netlink has them. */
  readonly maxTransactionBytes: number;
  /** Applies all steps in one transaction, or none. Errors: COMMIT_REJECTED, after which nothing is changed. */
  commit(table: TableId, steps: readonly BatchStep[]): Promise<void>;
  /**
   * Returns a number that differs from the last one if another program may have changed anything in this network
   * namespace.
   */
  generation(): Promise<number>;
  /**
   * Returns the elements of a set or map: for each key its data ("" in a set), or else its comment ("" for none).
   * Default: the data.
   */
  readElements(
    table: TableId,
    set: string,
    part?: "data" | "comment",
  ): Promise<ReadonlyMap<ElementBytes, ElementValue>>;
  /** Returns the rules of each chain that has any, as texts that are equal if the rules are. */
  readChains(table: TableId): Promise<ReadonlyMap<string, readonly string[]>>;
  /** Returns the packets of a named counter; undefined if the table has none of this name. */
  readCounter(table: TableId, name: string): Promise<number | undefined>;
  /** Returns the names of the chains and sets of a table; undefined if it does not exist. */
  listObjects(table: TableId): Promise<TableObjects | undefined>;
  close(): void;
}
