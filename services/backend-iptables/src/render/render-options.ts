import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chain-names.ts";

/** Names of the kernel's packet counters that rules count with. `PacketCounters` creates the counters. */
export interface CounterNames {
  /** Packets dropped as INVALID. */
  readonly invalidDropped: string;
  /** First packets of connections to node ports on localhost. */
  readonly localhostAccepted: string;
}

/**
 * The rule that keeps neighbours from 127.0.0.0/8 while the sysctl route_localnet is set. "none": there is no such
 * rule. "ours" or "others": there is one, and kpng or another program set the sysctl. A comment of the rule says which,
 * so that `removeRules` can decide whether to reset the sysctl.
 */
export type LocalnetGuard = "none" | "ours" | "others";

/**
 * Everything that the rules of one family depend on besides the Services; equal values give equal rules.
 * `makeRenderOptions` creates it for each sync. Separate from that function, because all renderers of this folder take
 * the options, and none of them creates them.
 */
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
  /** Undefined where the kernel or the node has no packet counters. */
  readonly counters?: CounterNames | undefined;
}
