import type { Laboratory } from "./laboratory.ts";

/** A namespace in the network, with one address per family. */
export interface Host {
  /** Name of the namespace. */
  readonly name: string;
  readonly v4: string;
  readonly v6: string;
}

/**
 * A client outside the cluster, a node that routes for it, and the pods on that node: the network of the demo, in which
 * one node has two pods.
 */
export interface Network {
  readonly client: Host;
  readonly node: Host;
  readonly pods: readonly Host[];
}

/** One of the two pods on node n1. */
export const podA: Host = { name: "pod-a", v4: "10.1.1.11", v6: "fd00:10:1:1::11" };
/** The other pod on node n1. */
export const podB: Host = { name: "pod-b", v4: "10.1.1.12", v6: "fd00:10:1:1::12" };

/** The network of node n1 with its pods. */
export const network: Network = {
  client: { name: "client", v4: "192.0.2.10", v6: "2001:db8:1::10" },
  node: { name: "n1", v4: "192.0.2.1", v6: "2001:db8:1::1" },
  pods: [podA, podB],
};

/** Addresses of the node on every pod's link: the same for all pods, as with many network plugins. */
const gateway = { v4: "169.254.1.1", v6: "fe80::1" };

/**
 * Builds the network: one link between client and node, and one link between the node and each pod. The node routes
 * between them.
 *
 * Takes about half a second.
 */
export async function buildNetwork(laboratory: Laboratory, { client, node, pods }: Network): Promise<void> {
  for (const { name } of [client, node, ...pods]) {
    await laboratory.add(name);
    await laboratory.run(name, ["sh", "-c", kernelSettings(name === node.name)]);
  }
  await laboratory.run(node.name, ["ip", "-batch", "-"], nodeLinks(laboratory, client, node, pods));
  await Promise.all([
    laboratory.run(client.name, ["ip", "-batch", "-"], clientRoutes(client, node)),
    ...pods.map((pod) => laboratory.run(pod.name, ["ip", "-batch", "-"], podRoutes(pod))),
  ]);
}

function nodeLinks(laboratory: Laboratory, client: Host, node: Host, pods: readonly Host[]): string {
  const lines = [
    `link add outside type veth peer name eth0 netns ${laboratory.path(client.name)}`,
    `address add ${node.v4}/24 dev outside`,
    `address add ${node.v6}/64 dev outside nodad`,
    "link set outside up",
  ];
  for (const { name, v4, v6 } of pods) {
    lines.push(
      `link add ${name} type veth peer name eth0 netns ${laboratory.path(name)}`,
      `address add ${gateway.v4}/32 dev ${name} scope link`,
      `address add ${gateway.v6}/64 dev ${name} nodad`,
      `link set ${name} up`,
      `route add ${v4}/32 dev ${name}`,
      `route add ${v6}/128 dev ${name}`,
    );
  }
  return `${lines.join("\n")}\n`;
}

function clientRoutes(client: Host, node: Host): string {
  return `address add ${client.v4}/24 dev eth0
address add ${client.v6}/64 dev eth0 nodad
link set eth0 up
route add default via ${node.v4}
route add default via ${node.v6}
`;
}

function podRoutes(pod: Host): string {
  return `address add ${pod.v4}/32 dev eth0
address add ${pod.v6}/128 dev eth0 nodad
link set eth0 up
route add default via ${gateway.v4} dev eth0 onlink
route add default via ${gateway.v6} dev eth0
`;
}

/**
 * Returns a shell command that sets the sysctls of a new namespace, before it has links.
 *
 * `more` adds settings below /proc/sys/net, for example "ipv4/icmp_ratelimit 0"; a value may be empty. Redirects are
 * off, because results would otherwise depend on the order of packets. Duplicate address detection is off, because it
 * delays each IPv6 address by a second, and no other host is on these links.
 */
export function kernelSettings(isRouter: boolean, more: readonly string[] = []): string {
  const on = isRouter ? 1 : 0;
  const values: readonly string[] = [
    `ipv4/ip_forward ${on}`,
    `ipv6/conf/all/forwarding ${on}`,
    ...["all", "default"].flatMap((scope) => [
      `ipv4/conf/${scope}/send_redirects 0`,
      `ipv4/conf/${scope}/accept_redirects 0`,
      `ipv4/conf/${scope}/rp_filter 0`,
      `ipv6/conf/${scope}/accept_redirects 0`,
      `ipv6/conf/${scope}/accept_dad 0`,
    ]),
    ...more,
  ];
  return values.map((line) => line.replace(/(\S+) (\S*)/, "echo $2 >/proc/sys/net/$1")).join(" && ");
}
