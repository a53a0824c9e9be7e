import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ProxyHost, ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import type { Family } from "@kpng/model/address.ts";
import type { TableSettings } from "@kpng/nftables/commit/nft-table.ts";
import { deleteTables, openRuleSets } from "@kpng/nftables/commit/open-rule-sets.ts";
import { type OptionSpec, oneOf, parseNonEmptyText, parseWholeNumber } from "@kpng/process/options.ts";
import { Datapath, type DatapathOptions, missingPrograms, removeDatapath } from "./datapath/datapath.ts";
import { EbpfMaps } from "./datapath/maps.ts";
import { PairedRuleSet } from "./datapath/paired-rule-set.ts";
import { PrintedSockets, SocketRuleSet } from "./datapath/socket-rule-set.ts";

/** Defaults that test programs use, too, because they pass only the options that matter to them. */
const defaults = {
  sockets: "node",
  nftablesMasqueradeBit: 14,
  maxFrontends: 65_536,
  maxEndpoints: 262_144,
  maxAffinityClients: 65_536,
} as const;

const ebpfOptions: readonly OptionSpec[] = [
  {
    flags: "--cgroup <folder>",
    description:
      "cgroup (version 2) whose processes are served at their sockets; in a container, where the node's /sys/fs/cgroup is mounted (default: the root, which contains all processes)",
    parse: parseNonEmptyText,
  },
  {
    flags: "--sockets <node|all>",
    description:
      "whose TCP sockets choose endpoints: those in the node's own network namespace, or also those of pods, which then bypass redirects in their namespaces (sidecars) and the node's DNS cache",
    default: defaults.sockets,
    parse: oneOf(["node", "all"]),
  },
  {
    flags: "--iptables-localhost-nodeports <true|false>",
    description: "serve node ports on 127.0.0.0/8 to processes of the node",
    default: "true",
    parse: oneOf(["true", "false"]),
  },
  {
    flags: "--nftables-masquerade-bit <bit>",
    isExpert: true,
    description: "bit of the packet mark that requests masquerade, 0 to 31",
    default: defaults.nftablesMasqueradeBit,
    parse: parseWholeNumber("--nftables-masquerade-bit", 0, 31),
  },
  // Bytes in both families: 2 × (40 in `slots` + 16 for a hash bucket of `frontends`).
  {
    flags: "--max-frontends <count>",
    isExpert: true,
    description:
      "most TCP frontends (address and port) per family; 112 bytes of kernel memory each, and more for each one in use",
    default: defaults.maxFrontends,
    parse: parseWholeNumber("--max-frontends", 1, 4_000_000),
  },
  // Bytes in both families: 2 × 24.
  {
    flags: "--max-endpoints <count>",
    isExpert: true,
    description:
      "most endpoints of all TCP Service ports per family; a port and policy takes one more, and a change as many again for a moment; 48 bytes of kernel memory each",
    default: defaults.maxEndpoints,
    parse: parseWholeNumber("--max-endpoints", 2, 16_000_000),
  },
  {
    flags: "--max-affinity-clients <count>",
    isExpert: true,
    description: "most clients that are remembered for a Service port with affinity",
    default: defaults.maxAffinityClients,
    parse: parseWholeNumber("--max-affinity-clients", 1, 16_000_000),
  },
];

/** Where the BPF file system of the node is mounted: programs and maps stay there when the program ends. */
const bpfFolder = "/sys/fs/bpf";

interface EbpfSettings extends Omit<DatapathOptions, "log"> {
  readonly isLoopbackWanted: boolean;
  readonly tables: TableSettings;
}

/**
 * Returns the settings from parsed options. Each instance has its own maps and tables, named `kpng-ebpf`, or `kpng-ebpf-`
 * followed by a hash of the service proxy name.
 */
export function readEbpfSettings(given: ParsedOptions, serviceProxyName: string): EbpfSettings {
  const options: ParsedOptions = { ...defaults, ...given };
  const hash = createHash("sha256").update(serviceProxyName).digest("hex").slice(0, 8);
  const name = serviceProxyName === "" ? "kpng-ebpf" : `kpng-ebpf-${hash}`;
  return {
    folder: join(bpfFolder, name),
    cgroup: typeof options.cgroup === "string" ? options.cgroup : undefined,
    isForPods: options.sockets === "all",
    tables: {
      table: name,
      masqueradeBit: Number(options.nftablesMasqueradeBit),
      maxClients: Number(options.maxAffinityClients),
    },
    isLoopbackWanted: options.iptablesLocalhostNodeports !== "false",
    mapSizes: {
      maxFrontends: Number(options.maxFrontends),
      maxEndpoints: Number(options.maxEndpoints),
    },
  };
}

/** The backend that serves Services with BPF programs (for sockets) and nftables rules (for packets). */
export const ebpfBackend = proxyBackend({
  name: "ebpf",
  proxyMode: "ebpf",
  healthPort: 10_284,
  description: "serve Services with BPF programs at sockets of this node, and nftables rules for packets",
  options: ebpfOptions,
  examples: `
Examples:
  # as root, on a node with Linux 5.18 or newer
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print what would be written, without writing it
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the maps or the rules, or detached a program? exit code 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # detach the programs, and remove maps and tables
  COMMAND --cleanup

Programs and rules stay when the process ends: Services are served, and the next start changes only what differs.
`,
  makeProxy,
});

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy {
  const settings = readEbpfSettings(options, serviceProxyName);
  const { tables } = settings;
  return {
    wantsLoopbackNodePorts: settings.isLoopbackWanted,
    openRuleSets: async (host) => {
      const packets = await openRuleSets(tables, host);
      const makeSockets = socketsFor(settings, host);
      return { ruleSets: packets.map((each) => new PairedRuleSet(each, makeSockets(each.family))) };
    },
    cleanUp: async ({ log }) => {
      const failures = new CleanupFailures(log);
      // Remove the programs first, because connections that they no longer handle can still use the rules.
      await failures.attempt(async () => removeDatapath({ ...settings, log }));
      await failures.attempt(() => deleteTables(tables.table, log));
      failures.end();
    },
  };
}

/** Returns a function that makes the rule set for the sockets of a family. Errors: those of `Datapath.open`. */
function socketsFor(settings: EbpfSettings, { destination, localAddresses, log }: ProxyHost) {
  const { folder, mapSizes } = settings;
  if (destination.kind === "kernel") {
    const datapath = Datapath.open({ ...settings, log });
    return (family: Family) => new SocketRuleSet({ family, datapath, mapSizes, localAddresses, log });
  }
  const maps = existsSync(folder) ? EbpfMaps.openExisting(folder, mapSizes) : undefined;
  const print = destination.kind === "print" ? destination.print : undefined;
  // Only for --diff, because --dry-run prints frontends only. Without maps, all frontends differ anyway.
  const missing = maps !== undefined && print === undefined ? missingPrograms(settings) : [];
  return (family: Family) =>
    // Both families share the programs.
    new PrintedSockets({ family, maps, print, missingPrograms: family === "v4" ? missing : [] });
}
