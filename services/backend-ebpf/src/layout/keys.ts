import type { Family } from "@kpng/model/address.ts";
import type { Frontend } from "@kpng/service-plan/service-plan.ts";
import ipaddr from "ipaddr.js";
import { sizes } from "./map-layouts.ts";

/** The start of each IPv4 address: addresses of both families have 16 bytes, as ::ffff:a.b.c.d. */
const mappedPrefix = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);

/** Writes an address in its 16 bytes. `address` is canonical. */
export function writeAddress(bytes: Buffer, address: string, at = 0): void {
  if (address.includes(":")) {
    bytes.set(ipaddr.IPv6.parse(address).toByteArray(), at);
    return;
  }
  // Without regular expressions and calls for single bytes, which would cost most of a load of 100 000 endpoints.
  for (let index = 0; index < 10; index++) bytes[at + index] = 0;
  bytes[at + 10] = bytes[at + 11] = 0xff;
  let index = at + 12;
  let value = 0;
  for (let position = 0; position < address.length; position++) {
    const code = address.charCodeAt(position);
    if (code === 46) {
      bytes[index++] = value;
      value = 0;
    } else value = value * 10 + code - 48;
  }
  bytes[index] = value;
}

/** Returns the 16 bytes of an address. */
export function addressBytes(address: string): Buffer {
  const bytes = Buffer.alloc(16);
  writeAddress(bytes, address);
  return bytes;
}

/** Returns the address of 16 bytes, in canonical form. */
export function readAddress(bytes: Buffer, at = 0): string {
  return familyOf(bytes, at) === "v4"
    ? bytes.subarray(at + 12, at + 16).join(".")
    : new ipaddr.IPv6([...bytes.subarray(at, at + 16)]).toRFC5952String();
}

/** Returns the family of the address at `at`. */
export function familyOf(bytes: Buffer, at = 0): Family {
  return bytes.compare(mappedPrefix, 0, mappedPrefix.length, at, at + mappedPrefix.length) === 0 ? "v4" : "v6";
}

const anyAddress: Readonly<Record<Family, string>> = { v4: "0.0.0.0", v6: "::" };

/**
 * Key of an element as text, one character for each byte: maps of this process are by text, and a hundred thousand
 * buffers would cost much memory and garbage collection.
 */
export type KeyText = string;

const frontendBytes = Buffer.alloc(sizes.frontendKey);

/**
 * Returns the key of a TCP frontend: address and port. A node port has the family's unspecified address.
 *
 * Source of all keys: the structures of lb.bpf.c. `tables/` and `datapath/` write them, and nothing else knows their
 * bytes.
 */
export function frontendKey(family: Family, { address, port }: Pick<Frontend, "address" | "port">): KeyText {
  writeAddress(frontendBytes, address ?? anyAddress[family]);
  frontendBytes.writeUInt16BE(port, 16);
  return frontendBytes.toString("latin1");
}

/** Describes the key of a frontend. *Shape:* `TCP 10.96.0.1:80`, `TCP *:30053`, `TCP [fd00::1]:80`. */
export function describeKey(text: KeyText): string {
  const key = Buffer.from(text, "latin1");
  const address = readAddress(key);
  const place = Object.values(anyAddress).includes(address) ? "*" : address.includes(":") ? `[${address}]` : address;
  return `TCP ${place}:${key.readUInt16BE(16)}`;
}
