import type { Family } from "@kpng/model/address.ts";
import type { ByteText } from "@kpng/model/byte-text.ts";
import type { Protocol } from "@kpng/model/service.ts";
import ipaddr from "ipaddr.js";

/** A field of an element's key or value: a "number" is part of a packed set or an endpoint id, an "index" a slot. */
export type Field = "address" | "protocol" | "port" | "number" | "index";

/** Kind of data in the elements of a set: none, a value, or a chain to go to or jump to. */
export type DataKind = "none" | "value" | "goto" | "jump";

interface SetLayout {
  readonly key: readonly Field[];
  readonly data: DataKind;
  /** Fields of the data, if that is a value. */
  readonly value?: readonly Field[];
}

const frontend: readonly Field[] = ["address", "protocol", "port"];
const nodePort: readonly Field[] = ["protocol", "port"];
const slot: readonly Field[] = ["number", "index"];
const endpoint: readonly Field[] = ["address", "port"];
const number: readonly Field[] = ["number"];

const layouts = {
  frontends: { key: frontend, data: "value", value: number },
  local_frontends: { key: frontend, data: "value", value: number },
  nodeports: { key: nodePort, data: "value", value: number },
  local_nodeports: { key: nodePort, data: "value", value: number },
  slots: { key: slot, data: "value", value: endpoint },
  picks: { key: number, data: "goto" },
  refused: { key: frontend, data: "none" },
  dropped: { key: frontend, data: "none" },
  refused_nodeports: { key: nodePort, data: "none" },
  dropped_nodeports: { key: nodePort, data: "none" },
  cluster_ips: { key: ["address"], data: "none" },
  hairpin: { key: ["address", "address"], data: "none" },
  firewall: { key: frontend, data: "goto" },
  sticky_sets: { key: number, data: "goto" },
  sticky_counts: { key: number, data: "jump" },
  sticky_slots: { key: slot, data: "value", value: number },
  sticky_addresses: { key: ["number", "number"], data: "value", value: endpoint },
} satisfies Readonly<Record<string, SetLayout>>;

/** The name of a set or map that all Services share. */
export type SharedSet = keyof typeof layouts;

/** The nftables sets and maps that all Services share. */
export const setLayouts: Readonly<Record<SharedSet, SetLayout>> = layouts;

/** Names of the shared sets. The maps of frontends come first: elements are deleted in this order (`divideSteps`). */
export const sharedSets = Object.keys(layouts) as readonly SharedSet[];

/** The maps from frontends to endpoint sets, whose values {@link packSet} returns. */
export const frontendMaps: ReadonlySet<string> = new Set<SharedSet>([
  "frontends",
  "local_frontends",
  "nodeports",
  "local_nodeports",
]);

/**
 * Key or value of an element, in the bytes that the kernel uses. Numbers are in host byte order (`numberBytes`), as
 * `meta priority` and `numgen` use them; addresses and ports in network byte order.
 */
export type ElementBytes = ByteText;

/**
 * The data of an element: bytes, the name of a chain, or "" in a set without data. `SetLayout.data` says which of the
 * three a set has.
 */
export type ElementValue = ElementBytes;

const protocolNumber: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };

/** Returns an address in network byte order. `address` must be in canonical form. */
export function addressBytes(address: string): ElementBytes {
  // A full sync converts some 100 000 addresses; parsing the IPv4 ones with regular expressions would leave 130 MB of
  // garbage.
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

/** A port in network byte order, padded to 4 bytes like every short field of a key. */
export function portBytes(port: number): ElementBytes {
  return String.fromCharCode(port >> 8, port & 0xff, 0, 0);
}

/** The protocol number used in IP headers, padded to 4 bytes. */
export function protocolBytes(protocol: Protocol): ElementBytes {
  return String.fromCharCode(protocolNumber[protocol], 0, 0, 0);
}

/** The length of an address of a family, in bytes. */
export function addressLength(family: Family): number {
  return family === "v4" ? 4 : 16;
}

/** How connections to a frontend are masqueraded, and whether senders from outside get a different endpoint set. */
export type FrontendKind =
  /** Never masqueraded. */
  | "plain"
  /** Masqueraded unless the sender is a pod; used for cluster IPs. */
  | "masqueradeUnlessPod"
  /** Always masqueraded; used for external addresses and node ports with policy Cluster. */
  | "masquerade"
  /**
   * Policy Local: pods and the node get this set, and connections from the node are masqueraded. All other senders get
   * the set that the frontend has in `local_frontends` or `local_nodeports`, if any.
   */
  | "local";

/**
 * In the order of their numbers, which the rules compare with `>=` and `<` (`balanceChains`): "local" is the highest.
 */
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
  /** The packed value of the lowest id. In a packet that got an endpoint, the rules never leave a smaller value. */
  firstId: 2 ** countBits,
  firstOfKind: (kind: FrontendKind): number => kinds.indexOf(kind) * 2 ** (countBits + idBits),
} as const;

/** Value of a frontend in an nftables map. It determines which endpoints get the frontend's connections, and how. */
interface PackedSet {
  readonly kind: FrontendKind;
  /** 1 to {@link maxSetId}. */
  readonly id: number;
  /** 1 to {@link maxEndpoints}; 0 for a set with affinity, whose own chain knows the number. */
  readonly count: number;
}

/**
 * Packs a set into the 32 bits of `meta priority`, so that one lookup of a frontend returns everything that the rules
 * need. With two lookups, a packet could get the id from before a concurrent transaction and the count from after it.
 */
export function packSet({ kind, id, count }: PackedSet): number {
  return packed.firstOfKind(kind) + id * 2 ** countBits + count;
}

/** The inverse of {@link packSet}, for the values of frontends and the keys of slots. */
export function unpackSet(value: number): PackedSet {
  const kind = kinds[Math.floor(value / 2 ** (countBits + idBits))] ?? "plain";
  return { kind, id: Math.floor(value / 2 ** countBits) % 2 ** idBits, count: value % 2 ** countBits };
}

/**
 * The lowest id of an endpoint in `sticky_addresses`, chosen so that an endpoint id is never mistaken for a packed set
 * id without its kind.
 */
export const firstEndpointId = 0x8000_0000;
