import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/**
 * Address family, IPv4 or IPv6. Most of kpng works once per family: a Service may have other endpoints for IPv4 than
 * for IPv6. All packages use the types and parsers of this file.
 */
export type Family = "v4" | "v6";

/** Both families, IPv4 first, the order of kube-proxy and KPNG. */
export const families: readonly Family[] = ["v4", "v6"];

/**
 * Addresses of both families, each in the order of the Kubernetes object.
 *
 * *Shape:* canonical text, no zone, no port: `{ v4: ["10.0.1.7"], v6: ["fd00::7"] }`.
 *
 * Endpoints and Services contain it. Whether an address is in a CIDR is answered by `isIn` of `cidr.ts`.
 */
export interface AddressSet {
  readonly v4: readonly string[];
  readonly v6: readonly string[];
}

/** The empty set. */
export const noAddresses: AddressSet = { v4: [], v6: [] };

/**
 * Returns the canonical form (dotted IPv4, RFC 5952 IPv6) of an address; undefined for any other text.
 *
 * Rejects names, zones (`fe80::1%eth0`), ports, and octal or shortened IPv4 (`010.1`, `127.1`), which programs
 * interpret differently.
 */
export function parseAddress(text: string): { readonly family: Family; readonly address: string } | undefined {
  switch (isIP(text)) {
    case 4:
      return { family: "v4", address: text };
    case 6:
      return text.includes("%") ? undefined : { family: "v6", address: ipaddr.IPv6.parse(text).toRFC5952String() };
    default:
      return undefined;
  }
}

/** Returns the canonical form of a CIDR, with host bits cleared (`10.1.2.3/8` → `10.0.0.0/8`); undefined if invalid. */
export function parseCidr(text: string): { readonly family: Family; readonly cidr: string } | undefined {
  const match = /^([^/]+)\/(\d{1,3})$/.exec(text);
  const address = match?.[1] === undefined ? undefined : parseAddress(match[1]);
  if (address === undefined || match?.[2] === undefined) return undefined;
  const length = Number(match[2]);
  if (length > (address.family === "v4" ? 32 : 128)) return undefined;
  const network =
    address.family === "v4"
      ? ipaddr.IPv4.networkAddressFromCIDR(text).toString()
      : ipaddr.IPv6.networkAddressFromCIDR(`${address.address}/${length}`).toRFC5952String();
  return { family: address.family, cidr: `${network}/${length}` };
}

/** Splits texts into valid addresses by family, without duplicates and in their order, and invalid texts. */
export function toAddressSet(texts: readonly string[]): {
  readonly set: AddressSet;
  readonly invalid: readonly string[];
} {
  const invalid: string[] = [];
  // Each endpoint has a list, nearly always of one address: it is not worth a Set.
  if (texts.length === 1) {
    const parsed = parseAddress(texts[0] ?? "");
    if (parsed !== undefined) return { set: { ...noAddresses, [parsed.family]: [parsed.address] }, invalid };
  }
  const found = { v4: new Set<string>(), v6: new Set<string>() };
  for (const text of texts) {
    const parsed = parseAddress(text);
    if (parsed === undefined) invalid.push(text);
    else found[parsed.family].add(parsed.address);
  }
  return { set: { v4: [...found.v4], v6: [...found.v6] }, invalid };
}

/** Formats an address with a port: `10.0.0.1:80`, `[fd00::1]:80`. */
export function addressAndPort(address: string, port: number | string): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
