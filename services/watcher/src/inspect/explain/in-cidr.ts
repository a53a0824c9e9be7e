import ipaddr from "ipaddr.js";

/**
 * True if a valid address is in a CIDR. False for another address family and for invalid CIDRs. `kpng explain` needs it
 * for packets that a user typed and for ranges that may be invalid.
 */
export function isInCidr(address: string, cidr: string): boolean {
  if (!ipaddr.isValidCIDR(cidr)) return false;
  const [network, length] = ipaddr.parseCIDR(cidr);
  const parsed = ipaddr.parse(address);
  return parsed.kind() === network.kind() && parsed.match(network, length);
}
