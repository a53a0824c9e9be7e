import type { Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import ipaddr from "ipaddr.js";

/**
 * Bytes of a key or value of an element as the kernel has them, one character for each byte (latin1). The renderers
 * make them, `ElementTable` compares them, and `netlink/` sends them. It is the lowest layer of this package, so every
 * folder may use it.
 *
 * A string rather than a buffer: it can be a key of maps, is compared by content, and takes one byte for each
 * character.
 */
export type ElementBytes = string;

/**
 * The data of an element: bytes, the name of a chain, or "" in a set without data. `dataOf` in `set-names.ts` says
 * which of them a set has.
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

/** Key of the one element of the set `record`, whose comment is the record. */
export const recordKey: ElementBytes = numberBytes(1);

/** The inverse of {@link numberBytes}, of the 4 bytes at `at`. */
export function readNumber(bytes: ElementBytes, at = 0): number {
  const byte = (index: number): number => bytes.charCodeAt(at + index);
  return byte(0) + byte(1) * 2 ** 8 + byte(2) * 2 ** 16 + byte(3) * 2 ** 24;
}

/** The length of an address of a family, in bytes. */
export function addressLength(family: Family): number {
  return family === "v4" ? 4 : 16;
}
