import { networkInterfaces } from "node:os";
import type { Family } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { TracedNode } from "@kpng/packet-tracer/trace.ts";

/** The addresses and interfaces of this node, on which the path of a packet depends besides the rules. */
export interface NodeLinks extends TracedNode {
  /** Without loopback and link-local addresses, in the system's order. */
  readonly addresses: readonly string[];
  /** *Shape:* `cbr0 10.1.1.1/24`. */
  readonly links: readonly string[];
}

/**
 * Reads the addresses and interfaces of this node for one family. `FamilyComparer` calls it before each comparison.
 * Separate, because `probesOf` and the tracer use the result without reading the system.
 *
 * A packet to an address outside the networks of all interfaces is assumed to leave by `eth0`: only rules of the CNI
 * look at that interface.
 */
export function readNodeLinks(family: Family): NodeLinks {
  const all = Object.entries(networkInterfaces()).flatMap(([link, list = []]) =>
    list
      .filter((each) => each.family === (family === "v4" ? "IPv4" : "IPv6"))
      .map(({ address, cidr }) => ({ link, address, cidr: cidr ?? address })),
  );
  const local = all.map(({ address }) => address);
  const localCIDRs = [...new Set([family === "v4" ? "127.0.0.0/8" : "::1/128", ...local])];
  return {
    localCIDRs,
    addresses: local.filter((address) => !/^(127\.|::1$|fe80:)/.test(address)),
    links: all.map(({ link, cidr }) => `${link} ${cidr}`),
    outInterface: (address) => {
      if (localCIDRs.some((cidr) => isIn(address, cidr))) return "lo";
      return all.find(({ cidr, link }) => link !== "lo" && isIn(address, cidr))?.link ?? "eth0";
    },
  };
}
