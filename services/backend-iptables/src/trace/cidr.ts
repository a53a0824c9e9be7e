import { BlockList } from "node:net";

const known = new Map<string, BlockList>();

/** True if the address is in the CIDR, which may also be a single address. Both of one family. */
export function isIn(address: string, cidr: string): boolean {
  let list = known.get(cidr);
  if (list === undefined) {
    list = new BlockList();
    const isV6 = cidr.includes(":");
    const [network = "", size = isV6 ? "128" : "32"] = cidr.split("/");
    list.addSubnet(network, Number(size), isV6 ? "ipv6" : "ipv4");
    known.set(cidr, list);
  }
  return list.check(address, address.includes(":") ? "ipv6" : "ipv4");
}
