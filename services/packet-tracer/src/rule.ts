/** One condition of a rule, as far as kube-proxy and our backends use them. */
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
  /** May hold and may not: chance, or what the node remembers of the client. */
  | { readonly kind: "maybe" }
  /** Something that the tracer does not know; a packet that comes to it cannot be traced. */
  | { readonly kind: "notUnderstood"; readonly why: string };

/** What a rule does when its conditions hold. */
export type Target =
  | { readonly kind: "jump"; readonly chain: string; readonly isGoto: boolean }
  | { readonly kind: "return" | "accept" | "drop" | "reject" | "masquerade" | "none" }
  | { readonly kind: "dnat"; readonly address: string; readonly port: number | undefined }
  /** mark = (mark & ~mask) ^ value, as --set-xmark. */
  | { readonly kind: "mark"; readonly value: number; readonly mask: number };

export interface Rule {
  readonly matches: readonly Match[];
  readonly target: Target;
  /** For how long a client that the rule remembers stays; undefined if it does not ask whom it remembers. */
  readonly affinitySeconds?: number | undefined;
  /** It stands for what a built-in chain does with whoever comes to its end. */
  readonly isPolicy?: true | undefined;
  /** As it was written, for messages. */
  readonly text: string;
}

/** Table name, then chain name. */
export type Ruleset = ReadonlyMap<string, ReadonlyMap<string, readonly Rule[]>>;
