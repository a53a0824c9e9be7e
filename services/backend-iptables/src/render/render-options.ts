import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import type { ChainNames } from "./chain-names.ts";

/** Packet counters of the kernel that rules count with; see `commit/packet-counters.ts`. */
export interface CounterNames {
  /** Packets dropped as INVALID. */
  readonly invalidDropped: string;
  /** First packets of connections to node ports on localhost. */
  readonly localhostAccepted: string;
}

/**
 * The rule that keeps neighbours from 127.0.0.0/8 while route_localnet is set: absent, or present with a record of the
 * program that set the sysctl (kpng, or another one before it); see `commit/route-localnet.ts`.
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
  /** The kernel does not treat late packets as INVALID (nf_conntrack_tcp_be_liberal): then none are dropped. */
  readonly isConntrackLiberal: boolean;
  /** Undefined where the kernel or the node has no packet counters. */
  readonly counters?: CounterNames | undefined;
}
