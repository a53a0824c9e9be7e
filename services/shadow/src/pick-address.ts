import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import ipaddr from "ipaddr.js";

/**
 * Addresses that no host has: reserved for documentation (RFC 5737, RFC 3849), for benchmarks (RFC 2544), and an
 * unassigned one in 2001::/23 (RFC 2928).
 */
const strangers: Readonly<Record<Family, readonly string[]>> = {
  v4: ["203.0.113.77", "198.51.100.77", "192.0.2.77", "198.18.77.77", "198.19.77.77"],
  v6: ["2001:db8:7777::77", "2001:db8:77::77", "2001:db8::77", "2001:2:77::77"],
};

/**
 * Returns an address that is in none of the CIDRs; undefined if they contain all candidates. `probesOf` makes packets
 * from it, as from a client that no rule knows. Separate from `probesOf`, because this file only computes with
 * addresses.
 */
export function pickStranger(family: Family, cidrs: readonly string[]): string | undefined {
  return strangers[family].find((address) => !cidrs.some((cidr) => isIn(address, cidr)));
}

/**
 * Returns an address of a CIDR that is in none of the `others`, if one of a few tries is; else any address of the CIDR.
 *
 * `probesOf` calls it for each range of clients, so that ranges are distinguished even if one contains another.
 */
export function pickInside(cidr: string, others: readonly string[]): string {
  const tries = candidatesIn(cidr);
  const free = tries.find((address) => !others.some((other) => other !== cidr && isIn(address, other)));
  return free ?? tries[0] ?? cidr.replace(/\/.*$/, "");
}

/** Returns addresses to try: from the end, which clusters use last, then from the middle and the beginning. */
function candidatesIn(cidr: string): readonly string[] {
  if (!cidr.includes("/")) return [cidr];
  const [network, length] = ipaddr.parseCIDR(cidr);
  const bytes = network.toByteArray();
  const bits = bytes.length * 8;
  if (length >= bits - 1) return [cidr.replace(/\/.*$/, "")];
  const base = bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);
  const size = 1n << BigInt(bits - length);
  return [size - 2n, size / 2n + 1n, 1n, size / 4n + 1n, (size / 4n) * 3n + 1n].map((offset) =>
    toAddress(base + offset, bytes.length),
  );
}

function toAddress(value: bigint, length: number): string {
  const bytes = Array.from({ length }, (_, at) => Number((value >> BigInt(8 * (length - 1 - at))) & 255n));
  const address = ipaddr.fromByteArray(bytes);
  return address.kind() === "ipv6" ? (address as ipaddr.IPv6).toRFC5952String() : address.toString();
}
