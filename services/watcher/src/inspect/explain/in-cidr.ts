import ipaddr from "ipaddr.js";

/** True if a valid address is in a CIDR. False for another address family and for invalid CIDRs. */
export function isInCidr(address: string, cidr: string): boolean {
  if (!ipaddr.isValidCIDR(cidr)) return false;
  const [network, length] = ipaddr.parseCIDR(cidr);
  const parsed = ipaddr.parse(address);
  return parsed.kind() === network.kind() && parsed.match(network, length);
}
