import { once } from "node:events";
import { kernelSettings } from "@kpng/laboratory/kernel-settings.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { runCommand } from "@kpng/laboratory/run-command.ts";
import { type Addresses, isIPv6, type NodeAddresses, prefixOf } from "./addresses.ts";

/** Namespace of the control plane and of the tests. */
export const controlPlaneName = "cp";

/** TAP device that becomes `vec0` of a guest. */
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

/** Adds the bridge inside a guest, in the namespace that the control plane would have, and connects `vec0` to it. */
export async function addGuestBridge(laboratory: Laboratory, addresses: Addresses): Promise<void> {
  await addControlPlane(laboratory, { ...addresses, controlPlane: [], nodes: [] });
  // A link moves to the namespace of a process, and this process does not see the namespaces of a laboratory.
  const inside = laboratory.start(controlPlaneName, ["sh", "-c", "read -r pid _ </proc/self/stat; echo $pid; cat"]);
  const [pid] = (await once(inside.stdout ?? inside, "data")) as [Buffer];
  const { exitCode, stderr } = await runCommand(["ip", "link", "set", "vec0", "netns", String(pid).trim()]);
  inside.stdin?.end();
  if (exitCode !== 0) throw new Error(`cannot move vec0: ${stderr.trim()}`);
  await laboratory.run(controlPlaneName, ["ip", "link", "set", "vec0", "master", "lan", "up"]);
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
