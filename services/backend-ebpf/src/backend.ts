import { existsSync } from "node:fs";
import { join } from "node:path";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ProxyHost } from "@kpng/backend-kit/proxy/proxy-host.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type Family, families } from "@kpng/model/address.ts";
import { deleteTables, openRuleSets } from "@kpng/nftables/commit/open-rule-sets.ts";
import { Datapath, missingPrograms, removeDatapath } from "./datapath/datapath.ts";
import { EbpfMaps } from "./datapath/maps.ts";
import { PairedRuleSet } from "./datapath/paired-rule-set.ts";
import { PrintedSockets } from "./datapath/printed-sockets.ts";
import { SocketRuleSet } from "./datapath/socket-rule-set.ts";
import { type EbpfSettings, ebpfOptions, readEbpfSettings } from "./ebpf-options.ts";

/**
 * The backend that serves Services with BPF programs at sockets, and with rules of nftables at packets. The program
 * kpng-ebpf (`main.ts`) runs it, and package cli runs it as `kpng SOURCE to-ebpf`.
 *
 * This file only declares the backend and connects parts; `SocketRuleSet` writes the maps, `Datapath` attaches the
 * programs, `NftRuleSet` of package nftables writes the rules, and `ebpf-options.ts` has the options.
 */
export const ebpfBackend = proxyBackend({
  name: "ebpf",
  proxyMode: "ebpf",
  description: "serve Services with BPF programs at sockets of this node, and nftables rules for packets",
  options: ebpfOptions,
  examples: `
Examples:
  # as root, on a node with Linux 5.18 or newer
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print what would be written, without writing it
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the maps or the rules, or detached a program? exit status 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # detach the programs, and remove maps and tables
  COMMAND --cleanup

Programs and rules stay when the process ends: Services are served, and the next start changes only what differs.
`,
  makeProxy,
});

/** Returns the proxy for parsed options. `proxyBackend` of backend-kit calls it. Errors: BAD_OPTION. */
function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy {
  const settings = readEbpfSettings(options, serviceProxyName);
  const { name, tables } = settings;
  return {
    rulesName: `ebpf ${name}`,
    wantsLoopbackNodePorts: settings.isLoopbackWanted,
    openRuleSets: async (host) => {
      const packets = await openRuleSets(tables, host);
      const makeSockets = socketsFor(settings, host);
      return { ruleSets: packets.map((each) => new PairedRuleSet(each, makeSockets(each.family))) };
    },
    cleanUp: async ({ log }) => {
      const failures = new CleanupFailures(log);
      // Sockets first: what they leave alone meets the rules.
      await failures.attempt(async () => removeDatapath({ ...settings, log }));
      await failures.attempt(() => deleteTables(tables.table, log));
      failures.end();
    },
  };
}

/** Returns what makes the sockets' half of a family. Errors: those of `Datapath.open`. */
function socketsFor(settings: EbpfSettings, { destination, localAddresses, log }: ProxyHost) {
  const { name, bpfFolder, mapSizes } = settings;
  if (destination.kind === "kernel") {
    const datapath = Datapath.open({ ...settings, log }, families);
    return (family: Family) => new SocketRuleSet({ family, datapath, mapSizes, localAddresses, log });
  }
  const folder = join(bpfFolder, name);
  const maps = existsSync(folder) ? EbpfMaps.openExisting(folder, mapSizes) : undefined;
  const print = destination.kind === "print" ? destination.print : undefined;
  const missing = maps !== undefined && print === undefined ? () => missingPrograms(settings) : undefined;
  return (family: Family) =>
    // Both families share the programs.
    new PrintedSockets({ family, maps, print, missingPrograms: family === "v4" ? missing : undefined });
}
