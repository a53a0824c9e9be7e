import type { ChainNames } from "./chain-names.ts";

/** How a packet of a pod on this node is known, in one family. Source: kube-proxy `util/localdetector.go`. */
export type LocalTraffic =
  | { readonly kind: "source"; readonly cidr: string }
  /** As iptables writes an interface: `cbr0`, or `veth+` for all that begin so. */
  | { readonly kind: "interface"; readonly pattern: string };

/** Counters of the kernel that rules count packets with; see `commit/packet-counters.ts`. */
export interface CounterNames {
  /** Packets dropped as INVALID. */
  readonly invalidDropped: string;
  /** First packets of connections to node ports on localhost. */
  readonly localhostAccepted: string;
}

/**
 * The rule that keeps neighbours from 127.0.0.0/8 while route_localnet is set: absent, or present with a record of who set
 * the sysctl (kpng, or another program before it); see `commit/route-localnet.ts`.
 */
export type LocalnetGuard = "none" | "ours" | "others";

/** All that rules of one family depend on besides the Services; equal values give equal rules. */
export interface RenderOptions {
  readonly family: "v4" | "v6";
  readonly names: ChainNames;
  /** The mark that says "give it the node's address"; one bit. */
  readonly masqueradeMark: number;
  /** Every connection to a cluster IP gets the node's address. */
  readonly isMasqueradeAll: boolean;
  /** Undefined if nothing tells pods' packets from others. */
  readonly localTraffic?: LocalTraffic | undefined;
  /** Where node ports answer; "all" is every address of the node. */
  readonly nodePortAddresses: "all" | readonly string[];
  /** Node ports answer on 127.0.0.0/8 too; IPv4 only. */
  readonly isLocalhostNodePorts: boolean;
  /** IPv4 only; "none" for IPv6. Never "none" with `isLocalhostNodePorts`. */
  readonly localnetGuard: LocalnetGuard;
  /** The kernel does not call late packets INVALID (nf_conntrack_tcp_be_liberal): then none are dropped. */
  readonly isConntrackLiberal: boolean;
  /** The node's own address in this family, internal before external; undefined if unknown. */
  readonly nodeAddress?: string | undefined;
  /** Undefined where the kernel or the node has none. */
  readonly counters?: CounterNames | undefined;
}
