import { BlockList } from "node:net";

const known = new Map<string, BlockList>();

/** More CIDRs than any cluster has ranges; single addresses, which come and go with pods, are not among them. */
const maxKnown = 10_000;

/** True if the address is in the CIDR, which may also be a single address. Both of one family. */
export function isIn(address: string, cidr: string): boolean {
  if (!cidr.includes("/")) return address === cidr;
  let list = known.get(cidr);
  if (list === undefined) {
    const [network = "", size = ""] = cidr.split("/");
    const isV6 = cidr.includes(":");
    if (size === (isV6 ? "128" : "32")) return address === network;
    list = new BlockList();
    list.addSubnet(network, Number(size), isV6 ? "ipv6" : "ipv4");
    if (known.size >= maxKnown) known.clear();
    known.set(cidr, list);
  }
  return list.check(address, address.includes(":") ? "ipv6" : "ipv4");
}
