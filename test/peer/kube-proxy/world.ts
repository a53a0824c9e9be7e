import type { Family } from "@kpng/model/address.ts";
import type { TracedNode } from "@kpng/packet-tracer/trace.ts";

/** What all generated states have in common. */

/** The Nodes. A kube-proxy runs for those of `watchedNodes`; the others only have pods. */
export const nodes: readonly { readonly name: string; readonly zone?: string }[] = [
  { name: "n1", zone: "a" },
  { name: "n2", zone: "b" },
  { name: "n3" },
  { name: "n4", zone: "c" },
];

export const watchedNodes: readonly string[] = ["n1", "n2", "n3"];

/** The address of each Node is the one that its network namespace has. */
export function nodeAddress(name: string, family: Family): string {
  const number = name.slice(1);
  return family === "v4" ? `172.16.0.${number}` : `fd00:172:16::${number}`;
}

/** A watched Node as far as a packet's way through its rules depends on it: all that it does not keep goes out by one link. */
export function tracedNode(name: string, family: Family): TracedNode {
  const loopback = family === "v4" ? "127.0.0.0/8" : "::1/128";
  return { localCIDRs: [loopback, nodeAddress(name, family)], outInterface: () => "eth0" };
}

/** Clients by the place that they are in. `stranger` is in none of the source ranges. */
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

/** Addresses of pods; by them kube-proxy tells pods from the rest of the world. */
export const podCidrs: Readonly<Record<Family, string>> = { v4: "10.244.0.0/16", v6: "fd00:244::/32" };

/** Kinds of source ranges of a load balancer. */
export const sourceRanges: Readonly<Record<string, readonly string[]>> = {
  v4: ["192.0.2.0/24"],
  both: ["192.0.2.0/24", "2001:db8:1::/64", "172.16.0.0/24"],
  pods: ["10.244.0.0/16", "fd00:244::/32"],
  nobody: ["203.0.113.0/24", "2001:db8:3::/64"],
  everyoneV4: ["203.0.113.0/24", "0.0.0.0/0", "2001:db8:3::/64"],
  everyoneV6: ["::/0", "192.0.2.0/24"],
  odd: [" 192.0.2.0/24", "2001:DB8:1::/64 ", "192.0.2.0/24"],
};

/** Another spelling of an address, as the API server takes it in a Service and keeps it: upper case and too long. */
export function respell(address: string): string {
  return address.includes(":") ? address.replace("::", ":0::0:").toUpperCase() : address;
}

/** One address of a block for each state, e.g. for cluster IPs. */
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
