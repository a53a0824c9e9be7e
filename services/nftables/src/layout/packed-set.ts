/** How connections to a frontend are masqueraded, and whether senders from outside get another set. */
export type FrontendKind =
  /** Never masqueraded. */
  | "plain"
  /** Masqueraded unless a pod sends: a cluster IP. */
  | "masqueradeUnlessPod"
  /** Always masqueraded: an external address or node port with policy Cluster. */
  | "masquerade"
  /**
   * Policy Local: pods and the node get this set, the node masqueraded; all others get the set that the frontend has in
   * `local_frontends` or `local_nodeports`, if any.
   */
  | "local";

const kinds: readonly FrontendKind[] = ["plain", "masqueradeUnlessPod", "masquerade", "local"];

/** Bits of a packed set, from the lowest: 13 for the number of endpoints, 17 for the id, 2 for the kind. */
const countBits = 13;
const idBits = 17;

/** Maximum number of endpoints of one set that get connections. */
export const maxEndpoints = 2 ** countBits - 1;
/** The largest id; 0 is not used. */
export const maxSetId = 2 ** idBits - 1;

/** Masks and limits of the packed value, for the rules that unpack it. */
export const packed = {
  countMask: maxEndpoints,
  idMask: maxSetId * 2 ** countBits,
  /** The packed value of the lowest id; no rule leaves a smaller one in a packet that got an endpoint. */
  firstId: 2 ** countBits,
  firstOfKind: (kind: FrontendKind): number => kinds.indexOf(kind) * 2 ** (countBits + idBits),
} as const;

/** Value of a frontend in a map of nftables: which endpoints get its connections, and how. */
export interface PackedSet {
  readonly kind: FrontendKind;
  /** 1 to {@link maxSetId}. */
  readonly id: number;
  /** 1 to {@link maxEndpoints}; 0 for a set with affinity, whose own chain knows the number. */
  readonly count: number;
}

/**
 * Packs a set into the 32 bits of `meta priority`, so that one lookup of a frontend returns all that the rules need.
 * With two lookups, a packet could get the id from before a concurrent transaction and the count from after it.
 *
 * `renderService` packs the values of frontends. The masks in {@link packed}, by which rules unpack them, are in the
 * same file, so that both agree about the bits.
 */
export function packSet({ kind, id, count }: PackedSet): number {
  return packed.firstOfKind(kind) + id * 2 ** countBits + count;
}

/** The inverse of {@link packSet}, for values of frontends and for keys of slots. */
export function unpackSet(value: number): PackedSet {
  const kind = kinds[Math.floor(value / 2 ** (countBits + idBits))] ?? "plain";
  return { kind, id: Math.floor(value / 2 ** countBits) % 2 ** idBits, count: value % 2 ** countBits };
}

/** The lowest id of an endpoint in `sticky_endpoints`, so that it is never taken for a set's id. */
export const firstEndpointId = 0x8000_0000;
