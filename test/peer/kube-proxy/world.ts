import type { Family } from "@kpng/model/address.ts";
import type { TracedNode } from "../../packet-tracer/trace.ts";

// Nodes, clients and addresses of all generated states.

/** Nodes. A kube-proxy runs for each of `watchedNodes`; the others only have pods. */
export const nodes: readonly { readonly name: string; readonly zone?: string }[] = [
  { name: "n1", zone: "a" },
  { name: "n2", zone: "b" },
  { name: "n3" },
  { name: "n4", zone: "c" },
];

export const watchedNodes: readonly string[] = ["n1", "n2", "n3"];

/** Returns the address of a Node, which is that of its network namespace. */
export function nodeAddress(name: string, family: Family): string {
  const number = name.slice(1);
  return family === "v4" ? `172.16.0.${number}` : `fd00:172:16::${number}`;
}

/** Returns a watched Node for the tracer. It has one external link for all packets that it forwards. */
export function tracedNode(name: string, family: Family): TracedNode {
  const loopback = family === "v4" ? "127.0.0.0/8" : "::1/128";
  return { localCIDRs: [loopback, nodeAddress(name, family)], outInterface: () => "eth0" };
}

/** Clients by location. No source range contains `stranger`. */
export type Client = "outside" | "stranger" | "pod" | "node";

export const clients: readonly Client[] = ["outside", "stranger", "pod", "node"];

const clientAddresses: Readonly<Record<Exclude<Client, "node">, Readonly<Record<Family, string>>>> = {
  outside: { v4: "192.0.2.10", v6: "2001:db8:1::10" },
  stranger: { v4: "198.51.100.9", v6: "2001:db8:2::9" },
  pod: { v4: "10.244.255.250", v6: "fd00:244:ffff::250" },
};

export function clientAddress(client: Client, family: Family, nodeName: string): string {
  return client === "node" ? nodeAddress(nodeName, family) : clientAddresses[client][family];
}

/** Pod CIDRs, by which kube-proxy detects local pods. */
export const podCidrs: Readonly<Record<Family, string>> = { v4: "10.244.0.0/16", v6: "fd00:244::/32" };

/** Source ranges of a load balancer, by kind. */
export const sourceRanges: Readonly<Record<string, readonly string[]>> = {
  v4: ["192.0.2.0/24"],
  both: ["192.0.2.0/24", "2001:db8:1::/64", "172.16.0.0/24"],
  pods: ["10.244.0.0/16", "fd00:244::/32"],
  noClient: ["203.0.113.0/24", "2001:db8:3::/64"],
  everyoneV4: ["203.0.113.0/24", "0.0.0.0/0", "2001:db8:3::/64"],
  everyoneV6: ["::/0", "192.0.2.0/24"],
  odd: [" 192.0.2.0/24", "2001:DB8:1::/64 ", "192.0.2.0/24"],
};

/** Returns another spelling of an address that the API server accepts and keeps: upper case and not shortened. */
export function respell(address: string): string {
  return address.includes(":") ? address.replace("::", ":0::0:").toUpperCase() : address;
}

/** Returns the address of a state in a block, e.g. for cluster IPs. */
export function blockAddress(block: "cluster" | "external" | "loadBalancer", family: Family, state: number): string {
  const [high, low] = [state >> 8, state & 255];
  const hex = (state + 0x1000).toString(16);
  switch (block) {
    case "cluster":
      return family === "v4" ? `10.96.${16 + high}.${low}` : `fd00:10:96::${hex}`;
    case "external":
      return family === "v4" ? `198.18.${high}.${low}` : `2001:db8:e::${hex}`;
    case "loadBalancer":
      return family === "v4" ? `198.19.${high}.${low}` : `2001:db8:b::${hex}`;
  }
}
