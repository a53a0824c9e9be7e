import { BlockList } from "node:net";

const known = new Map<string, BlockList>();

/** Bound of `known`: more than a cluster has ranges. Single addresses, which come and go with pods, are not in it. */
const maxKnown = 10_000;

/**
 * True if an address is in a CIDR of the same family; `cidr` may also be a single address. Used for the source ranges
 * of Services, for node-port addresses, and to recognize pods. A file of its own because it keeps parsed ranges, unlike
 * `address.ts`.
 */
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
