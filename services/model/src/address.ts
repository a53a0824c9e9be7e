import { BlockList, isIP } from "node:net";
import ipaddr from "ipaddr.js";

/** Address family. Most of kpng handles each separately, because a Service may have different endpoints in each. */
export type Family = "v4" | "v6";

/** Both families, IPv4 first, as in kube-proxy and KPNG. */
export const families: readonly Family[] = ["v4", "v6"];

/**
 * Addresses of both families, each in the order in which the Kubernetes object lists them.
 *
 * *Shape:* canonical form, without zone or port: `{ v4: ["10.0.1.7"], v6: ["fd00::7"] }`.
 */
export interface AddressSet {
  readonly v4: readonly string[];
  readonly v6: readonly string[];
}

/** The empty set. */
export const noAddresses: AddressSet = { v4: [], v6: [] };

/**
 * Returns the canonical form (dotted IPv4, RFC 5952 IPv6) of an address; undefined for any other string.
 *
 * Rejects names, zones (`fe80::1%eth0`), ports, IPv6 with a dotted part (`64:ff9b::192.0.2.1`), and octal or shortened
 * IPv4 (`010.1`, `127.1`), which programs interpret differently. Also rejects IPv4-mapped addresses (`::ffff:0:0/96`),
 * as newer API servers do, because kube-proxy and the kernel treat them as IPv4 addresses, which may belong to another
 * Service.
 */
export function parseAddress(text: string): { readonly family: Family; readonly address: string } | undefined {
  switch (isIP(text)) {
    case 4:
      return { family: "v4", address: text };
    case 6: {
      // ipaddr.js reads `::192.0.2.1` as `::ffff:192.0.2.1`.
      if (/[%.]/.test(text)) return undefined;
      const parsed = ipaddr.IPv6.parse(text);
      return parsed.isIPv4MappedAddress() ? undefined : { family: "v6", address: parsed.toRFC5952String() };
    }
    default:
      return undefined;
  }
}

/**
 * Replaces the dotted end of IPv6 addresses with its canonical form. The C library prints `::a60:1` as `::10.96.0.1`,
 * and so do nft, ipset, ipvsadm, ip and conntrack. *Shape:* `::ffff:1.2.3.4` → `::ffff:102:304`. Pure.
 */
export function withoutDottedIPv6(text: string): string {
  return text.replaceAll(
    /(::(?:ffff:)?)(\d+)\.(\d+)\.(\d+)\.(\d+)/g,
    (_, start: string, ...bytes: readonly string[]) => {
      const group = (at: number): string => (Number(bytes[at]) * 256 + Number(bytes[at + 1])).toString(16);
      return `${start}${group(0)}:${group(2)}`;
    },
  );
}

/**
 * Returns the canonical form of a CIDR, with host bits cleared (`10.1.2.3/8` → `10.0.0.0/8`); undefined if invalid.
 * Unlike {@link parseAddress}, it accepts IPv4-mapped ranges: they contain no address that `parseAddress` returns.
 */
export function parseCidr(text: string): { readonly family: Family; readonly cidr: string } | undefined {
  const [, address = "", digits = ""] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const length = Number(digits);
  switch (isIP(address)) {
    case 4: {
      if (length > 32) return undefined;
      return { family: "v4", cidr: `${ipaddr.IPv4.networkAddressFromCIDR(text).toString()}/${length}` };
    }
    case 6: {
      if (length > 128 || /[%.]/.test(address)) return undefined;
      return { family: "v6", cidr: `${ipaddr.IPv6.networkAddressFromCIDR(text).toRFC5952String()}/${length}` };
    }
    default:
      return undefined;
  }
}

/** Separates valid addresses (by family, in their original order, without duplicates) from invalid strings. */
export function toAddressSet(texts: readonly string[]): {
  readonly set: AddressSet;
  readonly invalid: readonly string[];
} {
  const invalid: string[] = [];
  // Nearly every endpoint has only one address, so the common case does without a Set.
  if (texts.length === 1) {
    const parsed = parseAddress(texts[0] ?? "");
    if (parsed !== undefined) return { set: { ...noAddresses, [parsed.family]: [parsed.address] }, invalid };
  }
  const byFamily = { v4: new Set<string>(), v6: new Set<string>() };
  for (const text of texts) {
    const parsed = parseAddress(text);
    if (parsed === undefined) invalid.push(text);
    else byFamily[parsed.family].add(parsed.address);
  }
  return { set: { v4: [...byFamily.v4], v6: [...byFamily.v6] }, invalid };
}

/** Formats an address with a port: `10.0.0.1:80`, `[fd00::1]:80`. */
export function addressAndPort(address: string, port: number | string): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

const blockLists = new Map<string, BlockList>();

/** Maximum number of cached block lists: more than the CIDRs of any cluster. Beyond it, all are dropped. */
const maxBlockLists = 10_000;

/**
 * True if an address is in a CIDR of the same family; `cidr` may also be a single address. Both must be canonical,
 * because single addresses are compared as strings.
 */
export function isIn(address: string, cidr: string): boolean {
  if (!cidr.includes("/")) return address === cidr;
  const isV6 = cidr.includes(":");
  // A BlockList takes an IPv4 address for its IPv4-mapped address, which is in `::/0`.
  if (address.includes(":") !== isV6) return false;
  let list = blockLists.get(cidr);
  if (list === undefined) {
    const [network = "", size = ""] = cidr.split("/");
    if (size === (isV6 ? "128" : "32")) return address === network;
    list = new BlockList();
    list.addSubnet(network, Number(size), isV6 ? "ipv6" : "ipv4");
    if (blockLists.size >= maxBlockLists) blockLists.clear();
    blockLists.set(cidr, list);
  }
  return list.check(address, isV6 ? "ipv6" : "ipv4");
}

/** True for a canonical IPv6 address in fe80::/10, which is valid on one link only and needs a zone. */
export function isLinkLocal(address: string): boolean {
  return /^fe[89ab][0-9a-f]:/.test(address);
}
