/**
 * The first packet of a connection, as it arrives at a node or leaves a process on it.
 *
 * Two packages compute the possible {@link PacketOutcome}s of a packet: `service-plan` from the Services of a node, and
 * `packet-tracer` from the text of its rules. Tests compare the two, so they share these types.
 */
export interface FirstPacket {
  /** *Shape:* as in rules: `tcp`, `udp`, `sctp`. */
  readonly protocol: string;
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  /** The interface that it arrives on; undefined if the node itself sends it. */
  readonly inInterface: string | undefined;
}

/** A possible fate of the first packet of a connection. */
export type PacketOutcome =
  | {
      readonly kind: "to";
      readonly address: string;
      readonly port: number;
      readonly isMasqueraded: boolean;
      /** How long the client stays with this endpoint, if affinity led here; absent if chance did. *Unit:* seconds. */
      readonly affinitySeconds?: number;
    }
  | { readonly kind: "refused" }
  | { readonly kind: "dropped" }
  /** No rule changed its destination or stopped it; `isAccepted` if a rule let it pass. */
  | { readonly kind: "untouched"; readonly isAccepted?: true };
