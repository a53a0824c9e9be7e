import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chains.ts";

/** Everything that the rules of one family depend on besides the Services; equal values give equal rules. */
export interface RenderOptions {
  readonly node: NodePlan;
  readonly names: ChainNames;
  /** The mark of packets that must get the node's address; one bit. */
  readonly masqueradeMark: number;
  /**
   * True if the kernel does not treat late packets as INVALID (nf_conntrack_tcp_be_liberal). No rule drops them then.
   */
  readonly isConntrackLiberal: boolean;
}

/** Settings of the rules of one instance, for both families. */
export interface RuleSettings {
  readonly names: ChainNames;
  /** Bit of the packet mark for packets that must get the node's address, 0 to 31. */
  readonly masqueradeBit: number;
}

/** Joins the settings of the command line, the node's part of the plan and the state of the kernel. */
export function makeRenderOptions(
  { names, masqueradeBit }: RuleSettings,
  node: NodePlan,
  { isConntrackLiberal }: Pick<RenderOptions, "isConntrackLiberal">,
): RenderOptions {
  return { node, names, masqueradeMark: 2 ** masqueradeBit, isConntrackLiberal };
}
