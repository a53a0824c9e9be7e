import type { Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import ipaddr from "ipaddr.js";

/** Names of the sets and maps of nftables that all Services share. */
export const sharedSets = [
  "frontends",
  "local_frontends",
  "nodeports",
  "local_nodeports",
  "slots",
  "picks",
  "refused",
  "dropped",
  "refused_nodeports",
  "dropped_nodeports",
  "cluster_ips",
  "hairpin",
  "firewall",
  "sticky_sets",
  "sticky_counts",
  "sticky_slots",
  "sticky_endpoints",
] as const;

/** The name of one of these sets. */
export type SharedSet = (typeof sharedSets)[number];

/** Data of the elements of a set: nothing, a value, or a chain that evaluation goes to or jumps to. */
export const dataOf: Readonly<Record<SharedSet, "none" | "value" | "goto" | "jump">> = {
  frontends: "value",
  local_frontends: "value",
  nodeports: "value",
  local_nodeports: "value",
  slots: "value",
  picks: "goto",
  refused: "none",
  dropped: "none",
  refused_nodeports: "none",
  dropped_nodeports: "none",
  cluster_ips: "none",
  hairpin: "none",
  firewall: "goto",
  sticky_sets: "goto",
  sticky_counts: "jump",
  sticky_slots: "value",
  sticky_endpoints: "value",
};

/**
 * Bytes of a key or value of an element as the kernel has them, one character for each byte (latin1).
 *
 * A string rather than a buffer: it can be a key of maps, is compared by content, and takes one byte for each
 * character.
 */
export type ElementBytes = string;

/**
 * The data of an element: bytes, the name of a chain, or "" in a set without data. `dataOf` says which
 * of them a set has.
 */
export type ElementValue = ElementBytes;

const protocolNumber: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };

/** An address in network byte order. `address` is canonical. */
export function addressBytes(address: string): ElementBytes {
  // A full sync needs some 100 000 of them: parsing IPv4 with regular expressions would leave 130 MB of garbage.
  return address.includes(":") ? String.fromCharCode(...ipaddr.parse(address).toByteArray()) : v4Bytes(address);
}

function v4Bytes(address: string): ElementBytes {
  const bytes = [0, 0, 0, 0];
  let at = 0;
  for (let index = 0; index < address.length; index++) {
    const code = address.charCodeAt(index);
    if (code === 46) at += 1;
    else bytes[at] = (bytes[at] ?? 0) * 10 + code - 48;
  }
  return String.fromCharCode(...bytes);
}

/** A port in network byte order, padded to 4 bytes as every short field of a key. */
export function portBytes(port: number): ElementBytes {
  return String.fromCharCode(port >> 8, port & 0xff, 0, 0);
}

/** Number of a protocol as IP headers have it, padded to 4 bytes. */
export function protocolBytes(protocol: Protocol): ElementBytes {
  return String.fromCharCode(protocolNumber[protocol], 0, 0, 0);
}

/** A number in host byte order, as `meta priority` and `numgen` have it. */
export function numberBytes(value: number): ElementBytes {
  return String.fromCharCode(value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, value >>> 24);
}

/** The inverse of {@link numberBytes}, of the 4 bytes at `at`. */
export function readNumber(bytes: ElementBytes, at = 0): number {
  const byte = (index: number): number => bytes.charCodeAt(at + index);
  return byte(0) + byte(1) * 2 ** 8 + byte(2) * 2 ** 16 + byte(3) * 2 ** 24;
}

/** The length of an address of a family, in bytes. */
export function addressLength(family: Family): number {
  return family === "v4" ? 4 : 16;
}

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
interface PackedSet {
  readonly kind: FrontendKind;
  /** 1 to {@link maxSetId}. */
  readonly id: number;
  /** 1 to {@link maxEndpoints}; 0 for a set with affinity, whose own chain knows the number. */
  readonly count: number;
}

/**
 * Packs a set into the 32 bits of `meta priority`, so that one lookup of a frontend returns all that the rules need.
 * With two lookups, a packet could get the id from before a concurrent transaction and the count from after it.
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
