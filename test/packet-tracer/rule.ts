/**
 * A condition of a rule, of the kinds that kube-proxy and our backends use. The types in this file describe parsed
 * rules. They are separate, because the parsers of iptables and of nft make such rules, and `walk` follows packets
 * through them.
 */
export type Match =
  | { readonly kind: "address"; readonly of: "source" | "destination"; readonly cidr: string; readonly isNot: boolean }
  | { readonly kind: "protocol"; readonly protocol: string; readonly isNot: boolean }
  | { readonly kind: "port"; readonly from: number; readonly to: number; readonly isNot: boolean }
  | { readonly kind: "localAddress"; readonly of: "source" | "destination"; readonly isNot: boolean }
  | { readonly kind: "mark"; readonly value: number; readonly mask: number; readonly isNot: boolean }
  | { readonly kind: "state"; readonly states: readonly string[]; readonly isNot: boolean }
  | { readonly kind: "originalAddress"; readonly cidr: string; readonly isNot: boolean }
  | { readonly kind: "originalPort"; readonly port: number; readonly isNot: boolean }
  | { readonly kind: "interface"; readonly of: "in" | "out"; readonly pattern: string; readonly isNot: boolean }
  /** Depends on chance, or on the earlier connections of the client. */
  | { readonly kind: "maybe" }
  /** A match that the tracer does not know; a packet that reaches it cannot be traced. */
  | { readonly kind: "notUnderstood"; readonly why: string };

/** The action of a rule whose conditions hold. */
export type Target =
  | { readonly kind: "jump"; readonly chain: string; readonly isGoto: boolean }
  | { readonly kind: "return" | "accept" | "drop" | "reject" | "masquerade" | "none" }
  | { readonly kind: "dnat"; readonly address: string; readonly port: number | undefined }
  /** mark = (mark & ~mask) ^ value, as --set-xmark. */
  | { readonly kind: "mark"; readonly value: number; readonly mask: number };

/** A parsed rule. */
export interface Rule {
  readonly matches: readonly Match[];
  readonly target: Target;
  /**
   * How long a client stays with its endpoint; undefined if the rule does not ask for earlier connections. *Unit:*
   * seconds.
   */
  readonly affinitySeconds?: number | undefined;
  /** Whether the rule represents the policy of a built-in chain. */
  readonly isPolicy?: true | undefined;
  /** The original text, for messages. */
  readonly text: string;
}

/** Table name, then chain name. */
export type Ruleset = ReadonlyMap<string, ReadonlyMap<string, readonly Rule[]>>;
