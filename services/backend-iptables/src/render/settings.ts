import type { ChainNames } from "./chain-names.ts";

/** Settings of the rules of one instance, for both families. */
export interface RuleSettings {
  readonly names: ChainNames;
  /** Bit of the packet mark for packets that must get the node's address, 0 to 31. */
  readonly masqueradeBit: number;
}
