import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chains.ts";

/**
 * The rule that keeps neighbours from 127.0.0.0/8 while the sysctl route_localnet is set. "none": there is no such
 * rule. "ours" or "others": there is one, and kpng or another program set the sysctl. A comment of the rule says which,
 * so that `removeRules` can decide whether to reset the sysctl.
 */
export type LocalnetGuard = "none" | "ours" | "others";

/** Everything that the rules of one family depend on besides the Services; equal values give equal rules. */
export interface RenderOptions {
  readonly node: NodePlan;
  readonly names: ChainNames;
  /** The mark of packets that must get the node's address; one bit. */
  readonly masqueradeMark: number;
  /** IPv4 only; "none" for IPv6. Never "none" with node ports on loopback addresses. */
  readonly localnetGuard: LocalnetGuard;
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

/** The state of the kernel that rules depend on. */
interface KernelFacts {
  /** True if the sysctl nf_conntrack_tcp_be_liberal is set; packets are then not dropped as INVALID. */
  readonly isConntrackLiberal: boolean;
  /** For IPv4. Default "others" with node ports on loopback addresses, else "none". */
  readonly localnetGuard?: LocalnetGuard | undefined;
}

/**
 * Joins the settings of the command line, the node's part of the plan and the state of the kernel into the options that
 * all renderers take.
 */
export function makeRenderOptions(settings: RuleSettings, node: NodePlan, facts: KernelFacts): RenderOptions {
  const { isConntrackLiberal, localnetGuard } = facts;
  return {
    node,
    names: settings.names,
    masqueradeMark: 2 ** settings.masqueradeBit,
    localnetGuard: node.family === "v6" ? "none" : (localnetGuard ?? (node.isLoopbackNodePorts ? "others" : "none")),
    isConntrackLiberal,
  };
}
