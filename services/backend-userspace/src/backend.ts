import { createHash } from "node:crypto";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type AddressSet, toAddressSet } from "@kpng/model/address.ts";
import { hasAddress } from "@kpng/model/service.ts";
import { type OptionSpec, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { openEntries, removeTables } from "./entry/redirect-entry.ts";
import { PrintedRuleSet, UserspaceRuleSet } from "./rules/userspace-rule-set.ts";
import { type TrafficSettings, UserspaceRuntime } from "./rules/userspace-runtime.ts";

const userspaceOptions: readonly OptionSpec[] = [
  repeatable(
    "--map <addresses>",
    "listen at local ports of these addresses, one per family, and print the mapping, instead of redirecting packets: needs no rights",
  ),
  {
    flags: "--max-connections <count>",
    isExpert: true,
    description:
      "maximum number of open TCP connections (0: by open files, two each, and memory, 48 KiB each; at most 100 000)",
    default: 0,
    parse: parseWholeNumber("--max-connections", 0, 10_000_000),
  },
];

interface UserspaceSettings {
  /** Addresses given with `--map`; none if packets are redirected. */
  readonly mapAddresses: AddressSet;
  /** Name of the nftables table. */
  readonly tableName: string;
  readonly traffic: TrafficSettings;
}

/**
 * Returns the settings from parsed options. Each instance has its own table, named `kpng-user`, or `kpng-user-`
 * followed by a hash of the service proxy name. kpng-nft has the names without `user`, and this backend deletes the
 * table that it finds. Errors: BAD_OPTION.
 */
export function readUserspaceSettings(options: ParsedOptions, serviceProxyName: string): UserspaceSettings {
  const hash = createHash("sha256").update(serviceProxyName).digest("hex").slice(0, 8);
  const given = (Array.isArray(options.map) ? options.map : []).map(String);
  if (options.once === true && options.dryRun !== true) {
    throw new ProcessError("BAD_OPTION", "--once would end the listeners with the process: use it with --dry-run");
  }
  return {
    mapAddresses: mapAddresses(given),
    tableName: serviceProxyName === "" ? "kpng-user" : `kpng-user-${hash}`,
    traffic: {
      // `idleMs` is the conntrack timeout that kube-proxy sets for idle connections.
      tcp: { idleMs: 86_400_000, halfClosedMs: 3_600_000, drainMs: 3_600_000 },
      // The kernel's nf_conntrack_udp_timeout and nf_conntrack_udp_timeout_stream.
      udp: { idleMs: 30_000, streamIdleMs: 120_000, streamAfterMs: 2_000 },
      sweepMs: 6_000,
      maxConnections: Number(options.maxConnections),
      // An eighth of the local ports.
      maxListenersPerService: 1_250,
    },
  };
}

function mapAddresses(texts: readonly string[]): AddressSet {
  const { set, invalid } = toAddressSet(texts);
  if (invalid.length > 0) throw new ProcessError("BAD_OPTION", `--map "${invalid[0]}" is not an IP address`);
  const several = [set.v4, set.v6].find(({ length }) => length > 1);
  if (several === undefined) return set;
  const text = `--map: ${several.join(" and ")} have the same IP family; give one per family`;
  throw new ProcessError("BAD_OPTION", text);
}

/** The backend that serves Services by relaying their traffic in this process. */
export const userspaceBackend = proxyBackend({
  name: "userspace",
  aliases: ["userspacelin"],
  proxyMode: "userspace",
  healthPort: 10_276,
  description: "serve Services by carrying their traffic in this process; needs no kernel feature",
  options: userspaceOptions,
  canDiff: false,
  examples: `
Examples:
  # on a node: nftables redirects packets to this process
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # without any rights: all Services of the cluster at local ports
  COMMAND --api 127.0.0.1:12090 --node-name n1 --map 127.0.0.1

  # print the frontends that would be opened
  COMMAND --node-name n1 --once --dry-run

  # after a kill: delete the table
  COMMAND --cleanup

Services are not served while the program does not run: its listeners end with it.
`,
  makeProxy,
});

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy {
  const settings = readUserspaceSettings(options, serviceProxyName);
  const { tableName } = settings;
  return {
    wantsLoopbackNodePorts: false,
    carriesTraffic: true,
    openRuleSets: async ({ destination, localAddresses, log, metrics }) => {
      if (destination.kind !== "kernel") {
        const print = destination.kind === "print" ? destination.print : () => undefined;
        return { ruleSets: nodeFamilies().map((family) => new PrintedRuleSet(family, print)) };
      }
      const print = (line: string): void => void process.stdout.write(line);
      const entries = await openEntries({ ...settings, print });
      const runtime = new UserspaceRuntime(settings.traffic, log, metrics);
      const ruleSets = entries.map((entry) => new UserspaceRuleSet({ entry, runtime, localAddresses }));
      const listeners = () => new Map(ruleSets.flatMap((ruleSet) => [...ruleSet.udpListeners()]));
      // Without redirection, a client reaches only the address to which it sends.
      return { ruleSets, udpListeners: hasAddress(settings.mapAddresses) ? undefined : listeners };
    },
    cleanUp: ({ log }) => removeTables(tableName, log),
  };
}
