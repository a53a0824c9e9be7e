import { type NodeView, type RunBackendOptions, runProgram, type ServiceView } from "@kpng/backend-kit";

/** Announced prefixes, each with how: graceful asks routers to prefer other nodes (RFC 8326) while endpoints drain. */
export type Announcements = ReadonlyMap<string, "normal" | "graceful">;

/** Route map that marks a prefix with the community GRACEFUL_SHUTDOWN. */
const gracefulMap = "KPNG-GRACEFUL";

/**
 * Announces the load-balancer IPs that this node serves, with FRR: each change of the view is compared with FRR's running
 * configuration, so a restart of either program leaves nothing wrong. The IPv4 and IPv6 unicast networks of the BGP
 * instance belong to this program.
 */
export const bgpAnnouncer: RunBackendOptions = {
  name: "bgp",
  options: [
    { flags: "--asn <number>", description: "number of the node's BGP instance, which must be configured" },
    { flags: "--vtysh <command>", description: "shell command that runs FRR's vtysh", default: "vtysh" },
  ],
  makeCallbacks: ({ asn, vtysh }) => {
    if (asn === undefined) throw new Error("--asn is required");
    return { onState: (view, signal) => announce(announcementsOf(view), String(asn), String(vtysh), signal) };
  },
};

/**
 * Returns what a node announces: the load-balancer IPs of Services for which it has an endpoint. With external policy
 * Local, the endpoint is on the node; while all of them terminate, the announcement is graceful.
 */
export function announcementsOf({ services }: Pick<NodeView, "services">): Announcements {
  const announced = new Map<string, "normal" | "graceful">();
  for (const view of services.values()) {
    const how = howToAnnounce(view);
    const { v4 = [], v6 = [] } = view.service.loadBalancerIPs ?? {};
    if (how === undefined) continue;
    for (const prefix of [...v4.map((ip) => `${ip}/32`), ...v6.map((ip) => `${ip}/128`)]) {
      // Several Services may share an address: one that has a lasting endpoint decides.
      if (announced.get(prefix) !== "normal") announced.set(prefix, how);
    }
  }
  return announced;
}

function howToAnnounce({ service, endpoints }: ServiceView): "normal" | "graceful" | undefined {
  const isLocal = service.externalTrafficPolicy === "Local";
  const serving = endpoints.filter(({ use }) => (isLocal ? use.local : use.cluster));
  if (serving.length === 0) return undefined;
  return isLocal && serving.every(({ conditions }) => conditions.terminating) ? "graceful" : "normal";
}

async function announce(wanted: Announcements, asn: string, vtysh: string, signal: AbortSignal): Promise<void> {
  const installed = parseNetworks(await run(vtysh, ["show running-config"], signal), asn);
  const commands = makeCommands(wanted, installed);
  const graceful = [`route-map ${gracefulMap} permit 10`, "set community graceful-shutdown additive", "exit"];
  // A command line of the system has room for about 1 000 commands.
  for (let at = 0; at < commands.length; at += 200) {
    const some = commands.slice(at, at + 200).flatMap(({ family, command }) => {
      return [`address-family ${family} unicast`, command, "exit-address-family"];
    });
    await run(vtysh, ["configure terminal", ...graceful, `router bgp ${asn}`, ...some], signal);
  }
}

/** Reads the IPv4 and IPv6 unicast networks of a BGP instance from FRR's running configuration. */
export function parseNetworks(config: string, asn: string): Announcements {
  const networks = new Map<string, "normal" | "graceful">();
  let isOfInstance = false;
  let isOfFamily = false;
  for (const line of config.split("\n")) {
    // Other instances, e.g. of a VRF, have more words.
    if (line.startsWith("router ")) isOfInstance = line === `router bgp ${asn}`;
    if (line.startsWith(" address-family ")) isOfFamily = /^ address-family ipv[46] unicast$/.test(line);
    const [, prefix, map] = /^ {2}network (\S+)(?: route-map (\S+))?$/.exec(line) ?? [];
    if (!isOfInstance || !isOfFamily || prefix === undefined) continue;
    networks.set(prefix, map === gracefulMap ? "graceful" : "normal");
  }
  return networks;
}

/** A command below `router bgp`, in an address family. */
interface FamilyCommand {
  readonly family: "ipv4" | "ipv6";
  readonly command: string;
}

/** Returns the commands that lead from the installed announcements to the wanted ones. */
export function makeCommands(wanted: Announcements, installed: Announcements): readonly FamilyCommand[] {
  const removed = [...installed.keys()].filter((prefix) => !wanted.has(prefix));
  const changed = [...wanted].filter(([prefix, how]) => installed.get(prefix) !== how);
  const inFamily = (prefix: string, command: string): FamilyCommand => {
    return { family: prefix.includes(":") ? "ipv6" : "ipv4", command };
  };
  return [
    ...removed.map((prefix) => inFamily(prefix, `no network ${prefix}`)),
    ...changed.map(([prefix, how]) =>
      inFamily(prefix, `network ${prefix}${how === "graceful" ? ` route-map ${gracefulMap}` : ""}`),
    ),
  ];
}

/** Runs commands of vtysh. Errors: vtysh fails, or rejects a command. */
async function run(vtysh: string, commands: readonly string[], signal: AbortSignal): Promise<string> {
  const words = commands.map((command) => `-c '${command}'`).join(" ");
  const end = await runProgram(["sh", "-c", `${vtysh} ${words}`], { timeoutMs: 10_000, signal });
  if (end.kind !== "exited" || end.exitCode !== 0) throw new Error(`${vtysh}: ${JSON.stringify(end)}`);
  // vtysh reports a rejected command only by a line that begins with "%".
  const rejected = /^%.*$/m.exec(end.stdout);
  if (rejected !== null) throw new Error(`${vtysh}: ${rejected[0]}`);
  return end.stdout;
}
