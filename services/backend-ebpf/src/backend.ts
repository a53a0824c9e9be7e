import { existsSync } from "node:fs";
import { join } from "node:path";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type Family, families } from "@kpng/model/address.ts";
import { Datapath, missingPrograms, removeDatapath } from "./datapath/datapath.ts";
import { EbpfRuleSet } from "./datapath/ebpf-rule-set.ts";
import { EbpfMaps } from "./datapath/maps.ts";
import { PrintedRuleSet } from "./datapath/printed-rule-set.ts";
import { ebpfOptions, readEbpfSettings } from "./ebpf-options.ts";
import { countServices } from "./tables/service-connections.ts";

/**
 * The backend that serves Services with BPF programs: at sockets of the node, and at packets from outside. The program
 * kpng-ebpf (`main.ts`) runs it, and package cli runs it as `kpng SOURCE to-ebpf`.
 *
 * This file only declares the backend and connects parts; `EbpfRuleSet` writes the maps, `Datapath` attaches the
 * programs, and `ebpf-options.ts` has the options.
 */
export const ebpfBackend = proxyBackend({
  name: "ebpf",
  proxyMode: "ebpf",
  description: "serve Services with BPF programs at sockets and interfaces of this node",
  options: ebpfOptions,
  examples: `
Examples:
  # as root, on a node with Linux 6.7 or newer
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print the frontends that would be written, without writing them
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the maps, or detached a program? exit status 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # detach the programs, and remove maps and table
  COMMAND --cleanup

Programs stay attached when the process ends: Services are served, and the next start changes only what differs.
`,
  makeProxy,
});

/** Returns the proxy for parsed options. `proxyBackend` of backend-kit calls it. Errors: BAD_OPTION. */
function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy {
  const settings = readEbpfSettings(options, serviceProxyName);
  const { name, bpfFolder, mapSizes } = settings;
  return {
    rulesName: `ebpf ${name}`,
    wantsLoopbackNodePorts: settings.isLoopbackWanted,
    openRuleSets: async ({ destination, localAddresses, log }) => {
      if (destination.kind !== "kernel") {
        const folder = join(bpfFolder, name);
        // Without maps of an earlier run, no rights are needed.
        const maps = existsSync(folder) ? EbpfMaps.openExisting(folder, mapSizes) : undefined;
        const print = destination.kind === "print" ? destination.print : undefined;
        const isCompared = maps !== undefined && print === undefined;
        const missing = isCompared ? () => missingPrograms(settings) : undefined;
        const makeRuleSet = (family: Family) =>
          // Both families share the programs.
          new PrintedRuleSet({ family, maps, print, missingPrograms: family === "v4" ? missing : undefined });
        return { ruleSets: families.map(makeRuleSet) };
      }
      const datapath = await Datapath.open({ ...settings, log }, families);
      const ruleSets = families.map((family) => new EbpfRuleSet({ family, datapath, mapSizes, localAddresses }));
      return { ruleSets, serviceCounts: () => countServices(ruleSets.map(({ connections }) => connections)) };
    },
    cleanUp: ({ log }) => removeDatapath({ ...settings, log }),
  };
}
