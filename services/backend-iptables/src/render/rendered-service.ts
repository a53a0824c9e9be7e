import type { RuleList } from "./dispatch.ts";
import type { ChainId } from "./table.ts";

/** A rule that one Service adds to a list shared by all Services, e.g. the chain that leads cluster IPs to Services. */
export interface ListedRule {
  readonly list: RuleList;
  readonly rule: string;
}

/**
 * The rules that one Service adds to the iptables rules of one address family. `renderService` makes them;
 * `DesiredChains` joins those of all Services into the chains of the node. Separate from `renderService`, because the
 * renderers that it calls need these types, too.
 */
export interface RenderedService {
  /** Rules of each chain that belongs to the Service alone. */
  readonly chains: ReadonlyMap<ChainId, readonly string[]>;
  readonly listed: readonly ListedRule[];
}
