import type { ChainNames } from "./chain-names.ts";

/**
 * Settings of the rules of one instance, for both families. `backend.ts` makes them from options, and `openRuleSets`
 * passes them to each `IptablesRuleSet`.
 *
 * They never change during a run, unlike `RenderOptions`, which `makeRenderOptions` derives from them and from the node
 * for each sync.
 */
export interface RuleSettings {
  readonly names: ChainNames;
  /** Bit of the packet mark for packets that must get the node's address, 0 to 31. */
  readonly masqueradeBit: number;
}
