/**
 * A packet on its path through a node. `trace.ts` creates it, and `walk.ts` changes it from rule to rule. A file of its
 * own, because `candidates.ts` reads it too.
 */
export interface Traced {
  readonly protocol: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  readonly inInterface: string | undefined;
  readonly outInterface: string | undefined;
  readonly state: "NEW" | "INVALID";
  readonly mark: number;
  /** The destination before any rule changed it. */
  readonly original: { readonly address: string; readonly port: number };
  readonly isTranslated: boolean;
  readonly isMasqueraded: boolean;
  /** A rule let it pass; false if no rule decided. */
  readonly isAccepted: boolean;
  /** How long the client stays with its endpoint, if affinity chose it; undefined if chance did. *Unit:* seconds. */
  readonly affinitySeconds: number | undefined;
  isLocal(address: string): boolean;
}
