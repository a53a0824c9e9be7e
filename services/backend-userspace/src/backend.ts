import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { chooseEntries, removeTables } from "./entry/choose-entry.ts";
import { PrintedRuleSet } from "./rules/printed-rule-set.ts";
import { type UserspaceChange, UserspaceRuleSet } from "./rules/userspace-rule-set.ts";
import { UserspaceRuntime } from "./rules/userspace-runtime.ts";
import { serviceCountsOf } from "./traffic/service-traffic.ts";
import { readUserspaceSettings, userspaceOptions } from "./userspace-options.ts";

/**
 * The backend that serves Services by listening for their clients and carrying the traffic in this process. The program
 * kpng-userspace (`main.ts`) runs it, and package cli runs it as `kpng SOURCE to-userspace`.
 */
export const userspaceBackend = proxyBackend<UserspaceChange>({
  name: "userspace",
  aliases: ["userspacelin"],
  proxyMode: "userspace",
  description: "serve Services by carrying their traffic in this process; needs no kernel feature",
  options: userspaceOptions,
  canDiff: false,
  examples: `
Examples:
  # on a node; the way in is chosen by what the process may do
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

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<UserspaceChange> {
  const settings = readUserspaceSettings(options, serviceProxyName);
  const { tableName } = settings;
  return {
    // With --entry map, several instances may run beside each other.
    rulesName: settings.entry === "map" ? undefined : tableName,
    wantsLoopbackNodePorts: false,
    carriesTraffic: true,
    openRuleSets: async ({ destination, localAddresses, log, metrics }) => {
      if (destination.kind !== "kernel") {
        const print = destination.kind === "print" ? destination.print : () => undefined;
        return { ruleSets: nodeFamilies().map((family) => new PrintedRuleSet(family, print)) };
      }
      const print = (line: string): void => void process.stdout.write(line);
      const entries = await chooseEntries({ ...settings, print, log });
      const runtime = new UserspaceRuntime(settings.traffic, log, metrics);
      const ruleSets = entries.map((entry) => new UserspaceRuleSet({ entry, runtime, localAddresses }));
      // Without rights over packets, nothing leads clients anywhere but to the address that they send to.
      const isRedirected = entries.some(({ kind }) => kind === "redirect");
      const listeners = () => new Map(ruleSets.flatMap((ruleSet) => [...ruleSet.udpListeners()]));
      const udpListeners = isRedirected ? listeners : undefined;
      return { ruleSets, serviceCounts: () => serviceCountsOf(runtime.table), udpListeners };
    },
    cleanUp: ({ log }) => removeTables(tableName, log),
  };
}
