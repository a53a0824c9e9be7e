import { cpus } from "node:os";
import { AgentClient } from "../agent/agent-client.ts";
import { Laboratory, runCommand } from "../laboratory.ts";
import { kernelSettings } from "../one-node.ts";
import type { Sender } from "../scenario/packet.ts";
import {
  type AddressPair,
  families as bothFamilies,
  boundAddress,
  bridgeName,
  crowdAddresses,
  type Family,
  gateways,
  hosts,
  neighbourAddress,
  nodeOf,
  outsideAddress,
  type PodName,
  podCIDRs,
  strangerAddress,
} from "../scenario/places.ts";
import type { Firewall } from "../scenario/scenario.ts";

/** Ports that pods and nodes serve. */
export const targetPorts = [8080, 8443];

/** Network of the scenarios: namespaces, links, and an agent in each. `close` removes all of it. */
export interface TwoNodes {
  readonly laboratory: Laboratory;
  /** Time limit for an expected answer. Only a failing test waits that long. */
  readonly answerMs: number;
  /** Families that packets are sent over. The network has both. */
  readonly families: readonly Family[];
  /** Returns the agent that sends for a sender. */
  agentOf(sender: Sender): AgentClient;
  close(): Promise<void>;
}

interface BuildOptions {
  /** Where the network is built; `close` closes it. Default: a new one. */
  readonly laboratory?: Laboratory | undefined;
  /** Default 3000. */
  readonly answerMs?: number | undefined;
  /** Default: both. */
  readonly families?: readonly Family[] | undefined;
  /** Called before agents start, e.g. to install other tools on n1. */
  readonly prepare?: ((laboratory: Laboratory) => Promise<void>) | undefined;
}

/**
 * Builds the network, in one to two seconds on two cores. Errors: LaboratoryUnavailable if namespaces are not
 * available.
 */
export async function buildTwoNodes(options: BuildOptions = {}): Promise<TwoNodes> {
  const { laboratory = await Laboratory.open(), answerMs = 3_000, families = bothFamilies, prepare } = options;
  try {
    await buildNetwork(laboratory);
    await prepare?.(laboratory);
    const agents = await Promise.all([
      ...Object.entries(hosts).map(([name, pair]) =>
        AgentClient.start(laboratory, name, targetPorts, Object.values(pair)),
      ),
      ...[clientName, neighbourName].map((name) => AgentClient.start(laboratory, name)),
    ]);
    await pinAgents(agents);
    const byName = new Map(agents.map((agent) => [agent.name, agent]));
    return {
      laboratory,
      answerMs,
      families,
      agentOf: (sender) => {
        const agent = byName.get(
          sender.kind === "outside" ? clientName : sender.kind === "neighbour" ? neighbourName : sender.name,
        );
        if (agent === undefined) throw new Error("agent not found");
        return agent;
      },
      close: () => laboratory.close(),
    };
  } catch (error) {
    await laboratory.close();
    throw error;
  }
}

const nodeNames = ["n1", "n2"] as const;
const podNames: readonly PodName[] = ["a", "b", "c", "d"];
const clientName = "client";
const neighbourName = "neighbour";
const lastCpu = cpus().length - 1;

/**
 * Builds the network of the scenarios: n1, n2 and the client on one switch, a bridge with hairpin mode for the pods of
 * each node, and routes between the nodes. n1 is the client's router. The client is the default route of all others:
 * packets without a rule end there, because the client does not forward.
 */
export async function buildNetwork(laboratory: Laboratory): Promise<void> {
  const names = ["lan", clientName, neighbourName, ...nodeNames, ...podNames];
  await Promise.all(
    names.map(async (name) => {
      await laboratory.add(name);
      await laboratory.run(name, ["sh", "-c", `${settings(name)} && ${receiveOnLastCpu}`]);
    }),
  );
  const batch = (name: string, lines: readonly string[]) =>
    laboratory.run(name, ["ip", "-batch", "-"], `${lines.join("\n")}\n`);
  await Promise.all([
    batch("lan", lanLinks(laboratory)),
    ...nodeNames.map((node) => batch(node, bridgeLinks(laboratory, node))),
  ]);
  await Promise.all([
    batch(clientName, clientRoutes()),
    batch(neighbourName, neighbourRoutes()),
    ...nodeNames.map((node) => batch(node, nodeRoutes(node))),
    ...podNames.map((pod) => batch(pod, podRoutes(pod))),
  ]);
}

/**
 * Sysctls of a host. ICMP errors are not limited; otherwise only the first of many rejected datagrams would cause one.
 */
function settings(name: string): string {
  const isRouter = name === "n1" || name === "n2";
  return kernelSettings(isRouter, [
    // Bridged packets must pass the rules; otherwise the address in a pod's answer to a neighbour is not translated
    // back.
    ...["iptables", "ip6tables"].map((tool) => `bridge/bridge-nf-call-${tool} ${isRouter ? 1 : 0}`),
    "ipv4/icmp_ratelimit 0",
    "ipv4/icmp_ratemask 0",
    "ipv6/icmp/ratelimit 0",
    // Empty: no ICMPv6 message counts against the kernel's limit for all messages of a namespace, either.
    "ipv6/icmp/ratemask ",
    // On nodes, the service proxy sets it.
    ...(name === neighbourName ? ["ipv4/conf/all/route_localnet 1"] : []),
  ]);
}

/**
 * Shell command that lets the last CPU handle the packets that arrive, of `lo` and of links that are added later; agents
 * run on the others. Otherwise the rejection of a SYN arrives within the call of connect(), when the socket is locked;
 * the kernel drops it (LockDroppedIcmps), and each rejected IPv6 connection takes a second, until its SYN is sent again.
 * Needs root of the machine and Linux 6.3; without it, tests are only slower.
 */
const receiveOnLastCpu = `{
  echo ${(1 << Math.min(lastCpu, 31)).toString(16)} >/proc/sys/net/core/rps_default_mask
  unshare --mount sh -c 'mount -t sysfs none /sys && cat /proc/sys/net/core/rps_default_mask >/sys/class/net/lo/queues/rx-0/rps_cpus'
} 2>/dev/null || true`;

/** Keeps agents off the CPU that handles the packets that arrive; see {@link receiveOnLastCpu}. */
async function pinAgents(agents: readonly AgentClient[]): Promise<void> {
  if (lastCpu === 0) return;
  const pids = agents.map(({ processId = 0 }) => `$(cat /proc/${processId}/task/${processId}/children)`);
  await runCommand(["sh", "-c", `for pid in ${pids.join(" ")}; do taskset -a -c -p 0-${lastCpu - 1} $pid; done`]);
}

function lanLinks(laboratory: Laboratory): readonly string[] {
  return [
    "link add lan0 type bridge mcast_snooping 0",
    "link set lan0 up",
    ...[clientName, neighbourName, ...nodeNames].flatMap((name) => [
      `link add to-${name} type veth peer name eth0 netns ${laboratory.path(name)}`,
      `link set to-${name} master lan0 up`,
    ]),
  ];
}

function bridgeLinks(laboratory: Laboratory, node: "n1" | "n2"): readonly string[] {
  return [
    `link add ${bridgeName} type bridge mcast_snooping 0`,
    `link set ${bridgeName} up`,
    ...podNames
      .filter((pod) => nodeOf[pod] === node)
      .flatMap((pod) => [
        `link add veth-${pod} type veth peer name eth0 netns ${laboratory.path(pod)}`,
        `link set veth-${pod} master ${bridgeName} up`,
        // For a pod that reaches itself through its Service, the bridge sends the frame back to its port.
        `link set veth-${pod} type bridge_slave hairpin on`,
      ]),
  ];
}

function nodeRoutes(node: "n1" | "n2"): readonly string[] {
  const other = node === "n1" ? "n2" : "n1";
  return [
    ...addresses("eth0", hosts[node]),
    ...addresses(bridgeName, gateways[node]),
    "link set eth0 up",
    `route add ${podCIDRs[other].v4} via ${hosts[other].v4}`,
    `route add ${podCIDRs[other].v6} via ${hosts[other].v6}`,
    `route add default via ${outsideAddress.v4}`,
    `route add default via ${outsideAddress.v6}`,
    ...(node === "n1" ? addresses("lo", boundAddress, 32, 128) : []),
  ];
}

function clientRoutes(): readonly string[] {
  return [
    ...[outsideAddress, strangerAddress, ...crowdAddresses].flatMap((pair) => addresses("eth0", pair)),
    "link set eth0 up",
    `route add default via ${hosts.n1.v4} src ${outsideAddress.v4}`,
    `route add default via ${hosts.n1.v6} src ${outsideAddress.v6}`,
    // Also for the node itself, because the kernel prefers the last of several IPv6 addresses.
    `route add ${hosts.n1.v6}/128 dev eth0 src ${outsideAddress.v6}`,
  ];
}

/**
 * Returns the routes of the neighbour. It routes 127.0.0.0/8 to n1, like an attacker on the nodes' network
 * (CVE-2020-8558).
 */
function neighbourRoutes(): readonly string[] {
  return [
    ...addresses("eth0", neighbourAddress),
    "link set eth0 up",
    "address delete 127.0.0.1/8 dev lo",
    `route add 127.0.0.0/8 via ${hosts.n1.v4} src ${neighbourAddress.v4}`,
    `route add default via ${hosts.n1.v4}`,
    `route add default via ${hosts.n1.v6}`,
  ];
}

function podRoutes(pod: PodName): readonly string[] {
  const gateway = gateways[nodeOf[pod]];
  return [
    ...addresses("eth0", hosts[pod]),
    "link set eth0 up",
    `route add default via ${gateway.v4}`,
    `route add default via ${gateway.v6}`,
  ];
}

function addresses(link: string, { v4, v6 }: AddressPair, length4 = 24, length6 = 64): readonly string[] {
  return [`address add ${v4}/${length4} dev ${link}`, `address add ${v6}/${length6} dev ${link} nodad`];
}

const none: Firewall = { drops: [] };

/** Firewall of n1's administrator, which changes between scenarios. */
export class NodeFirewall {
  #present: Firewall = none;

  /**
   * Replaces the firewall. New rules follow the installed ones; policies are set last and reset first, so that no
   * packet meets half a firewall.
   */
  async put(world: TwoNodes, wanted: Firewall = none): Promise<void> {
    const before = this.#present;
    if (JSON.stringify(before) === JSON.stringify(wanted)) return;
    this.#present = wanted;
    for (const [family, tool] of [
      ["v4", "iptables"],
      ["v6", "ip6tables"],
    ] as const) {
      const lines = [
        ...before.drops.map((chain) => `${tool} -P ${chain} ACCEPT`),
        ...firewallRules(before, family).map((rule) => `${tool} -D ${rule}`),
        ...firewallRules(wanted, family).map((rule) => `${tool} -A ${rule}`),
        ...wanted.drops.map((chain) => `${tool} -P ${chain} DROP`),
      ];
      await world.laboratory.run("n1", ["sh", "-c", lines.join(" && ")]);
    }
  }
}

/** Rules of a firewall in the syntax of `iptables -A`, in order. */
function firewallRules({ drops }: Firewall, family: Family): readonly string[] {
  if (!drops.includes("INPUT")) return [];
  return [
    "INPUT -i lo -j ACCEPT",
    "INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    // IPv6 does not work without neighbour discovery.
    ...(family === "v6" ? ["INPUT -p ipv6-icmp -j ACCEPT"] : []),
  ];
}
