import type { RuleList } from "./dispatch.ts";
import type { ChainId } from "./table.ts";

/** A rule of one Service in a list that several Services share. */
export interface ListedRule {
  readonly list: RuleList;
  readonly rule: string;
}

/** The part of one Service in the rules of one family. */
export interface RenderedService {
  /** Rules of each chain that belongs to the Service alone. */
  readonly chains: ReadonlyMap<ChainId, readonly string[]>;
  readonly listed: readonly ListedRule[];
}
