import { once } from "node:events";
import { type Laboratory, runCommand } from "@kpng/laboratory/laboratory.ts";
import { kernelSettings } from "@kpng/laboratory/one-node.ts";
import { guestLink } from "../../guest/guest.ts";

/** Address families of a cluster, in the order of Kubernetes: the first is that of a Service by default. */
export type Family = "ipv4" | "ipv6";
export type Families = readonly [Family, ...Family[]];

/**
 * Addresses of a test cluster. They exist only in the network namespaces of its laboratory, so every cluster has the
 * same.
 */
export interface Addresses {
  readonly families: Families;
  /** Host of the control plane and of the tests, one address for each family. */
  readonly controlPlane: readonly string[];
  /** CIDRs of all pods, for --cluster-cidr. */
  readonly podCIDRs: readonly string[];
  readonly serviceCIDRs: readonly string[];
  /** Cluster IP of the API server's Service, of the first family. */
  readonly kubernetes: string;
  /** Cluster IP of the DNS Service, of the first family. */
  readonly dns: string;
  readonly nodes: readonly NodeAddresses[];
}

export interface NodeAddresses {
  readonly name: string;
  readonly zone: string;
  /** One for each family, as in all arrays here. */
  readonly addresses: readonly string[];
  readonly podCIDRs: readonly string[];
}

interface FamilyPlan {
  readonly prefix: number;
  readonly controlPlane: string;
  readonly pods: string;
  readonly services: string;
  readonly kubernetes: string;
  readonly dns: string;
  readonly node: (number: number) => { readonly address: string; readonly podCIDR: string };
}

const plans: Readonly<Record<Family, FamilyPlan>> = {
  ipv4: {
    prefix: 24,
    controlPlane: "10.250.0.1",
    pods: "10.251.0.0/16",
    services: "10.96.0.0/16",
    kubernetes: "10.96.0.1",
    dns: "10.96.0.10",
    node: (number) => ({ address: `10.250.0.1${number}`, podCIDR: `10.251.${number}.0/24` }),
  },
  ipv6: {
    prefix: 64,
    controlPlane: "fd00:250::1",
    pods: "fd00:251::/48",
    services: "fd00:10:96::/112",
    kubernetes: "fd00:10:96::1",
    dns: "fd00:10:96::a",
    node: (number) => ({ address: `fd00:250::1${number}`, podCIDR: `fd00:251:0:${number}::/64` }),
  },
};

/** Returns the addresses of a cluster of `nodeCount` nodes, at most 9. The nodes n1, n2, … are in three zones. */
export function addressesOf(families: Families, nodeCount: number): Addresses {
  const each = families.map((family) => plans[family]);
  return {
    families,
    controlPlane: each.map(({ controlPlane }) => controlPlane),
    podCIDRs: each.map(({ pods }) => pods),
    serviceCIDRs: each.map(({ services }) => services),
    kubernetes: plans[families[0]].kubernetes,
    dns: plans[families[0]].dns,
    nodes: Array.from({ length: nodeCount }, (_, index) => {
      const places = each.map(({ node }) => node(index + 1));
      return {
        name: `n${index + 1}`,
        zone: `zone-${(index % 3) + 1}`,
        addresses: places.map(({ address }) => address),
        podCIDRs: places.map(({ podCIDR }) => podCIDR),
      };
    }),
  };
}

/** Returns the length of the prefix of the network that nodes and control plane share: `10.250.0.11` → 24. */
export function prefixOf(address: string): number {
  return plans[isIPv6(address) ? "ipv6" : "ipv4"].prefix;
}

export function isIPv6(address: string): boolean {
  return address.includes(":");
}

/** Returns host and port as a URL has them: `[fd00::1]:80`. */
export function hostAndPort(address: string, port: number): string {
  return isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Namespace of the control plane and of the tests. */
export const controlPlaneName = "cp";

/** TAP device that becomes `guestLink` of a guest. */
export const guestTap = "guest";

/**
 * Adds the namespace of the control plane, with the bridge that the nodes are connected to and routes to their pods.
 */
export async function addControlPlane(laboratory: Laboratory, { controlPlane, nodes }: Addresses): Promise<void> {
  await laboratory.add(controlPlaneName);
  await laboratory.run(controlPlaneName, [
    "sh",
    "-ec",
    [
      kernelSettings(false),
      "ip link add lan type bridge",
      ...controlPlane.map((address) => `ip address add ${address}/${prefixOf(address)} dev lan nodad`),
      "ip link set lan up",
      ...nodes.flatMap(routesToPods),
      // Rules of the nodes are tested, not rules of this bridge.
      bridgeCallsRules(0),
    ].join("\n"),
  ]);
}

/** Adds the TAP device that connects a guest to the bridge. */
export async function addGuestTap(laboratory: Laboratory): Promise<void> {
  const commands = [
    `ip tuntap add mode tap ${guestTap}`,
    // Packets longer than its buffers corrupt the memory of user-mode Linux 7.2.
    `ip link set ${guestTap} gso_max_segs 1`,
    `ip link set ${guestTap} master lan up`,
  ];
  await laboratory.run(controlPlaneName, ["sh", "-ec", commands.join("\n")]);
}

/** Adds the bridge inside a guest, in the namespace that the control plane would have, and connects `guestLink` to it. */
export async function addGuestBridge(laboratory: Laboratory, addresses: Addresses): Promise<void> {
  await addControlPlane(laboratory, { ...addresses, controlPlane: [], nodes: [] });
  // A link moves to the namespace of a process, and this process does not see the namespaces of a laboratory.
  const inside = laboratory.start(controlPlaneName, ["sh", "-c", "read -r pid _ </proc/self/stat; echo $pid; cat"]);
  const [pid] = (await once(inside.stdout ?? inside, "data")) as [Buffer];
  const { exitCode, stderr } = await runCommand(["ip", "link", "set", guestLink, "netns", String(pid).trim()]);
  inside.stdin?.end();
  if (exitCode !== 0) throw new Error(`cannot move ${guestLink}: ${stderr.trim()}`);
  await laboratory.run(controlPlaneName, ["ip", "link", "set", guestLink, "master", "lan", "up"]);
}

/**
 * Adds the namespace of a node, connects it, and adds routes to the pods of the others. A second call replaces the
 * namespace by a new one without any rules, as a restarted machine has it.
 */
export async function addNode(laboratory: Laboratory, addresses: Addresses, node: NodeAddresses): Promise<void> {
  const { name } = node;
  const path = laboratory.path(name);
  await laboratory.run(controlPlaneName, [
    "sh",
    "-c",
    `[ ! -e "$0" ] || umount "$0"; ip link delete ${name} 2>&1; :`,
    path,
  ]);
  await laboratory.add(name);
  await laboratory.run(name, ["sh", "-ec", kernelSettings(true)]);
  await laboratory.run(controlPlaneName, ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0"]);
  await laboratory.run(controlPlaneName, ["ip", "link", "set", "eth0", "netns", path]);
  await laboratory.run(controlPlaneName, ["ip", "link", "set", name, "master", "lan", "up"]);
  const others = addresses.nodes.filter((other) => other.name !== name);
  await laboratory.run(name, [
    "sh",
    "-ec",
    [
      ...node.addresses.map((address) => `ip address add ${address}/${prefixOf(address)} dev eth0 nodad`),
      "ip link set eth0 up",
      ...addresses.controlPlane.map((gateway) => `ip ${family(gateway)} route add default via ${gateway}`),
      ...others.flatMap(routesToPods),
      bridgeCallsRules(1),
    ].join("\n"),
  ]);
}

function routesToPods({ addresses, podCIDRs }: NodeAddresses): readonly string[] {
  return podCIDRs.map((cidr, at) => `ip ${family(cidr)} route replace ${cidr} via ${addresses[at]}`);
}

/** Returns a command that sets whether packets between ports of a bridge pass the rules, as kube-proxy requires. */
function bridgeCallsRules(value: 0 | 1): string {
  return `for file in /proc/sys/net/bridge/bridge-nf-call-*tables; do [ ! -e $file ] || echo ${value} >$file; done`;
}

function family(address: string): string {
  return isIPv6(address) ? "-6" : "-4";
}
