import { createHash } from "node:crypto";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import type { TableSettings } from "@kpng/nftables/commit/nft-table.ts";
import { deleteTables, openRuleSets } from "@kpng/nftables/commit/open-rule-sets.ts";
import { type OptionSpec, parseWholeNumber } from "@kpng/process/options.ts";

/** Options that only this backend has. */
const nftOptions: readonly OptionSpec[] = [
  {
    flags: "--nftables-masquerade-bit <bit>",
    isExpert: true,
    description: "bit of the packet mark that requests masquerade, 0 to 31",
    default: 14,
    parse: parseWholeNumber("--nftables-masquerade-bit", 0, 31),
  },
  {
    flags: "--max-affinity-clients <count>",
    isExpert: true,
    description: "most clients that are remembered for one Service port with affinity",
    default: 1_000_000,
    parse: parseWholeNumber("--max-affinity-clients", 1, 100_000_000),
  },
];

/** The backend that serves Services with nftables rules. */
export const nftBackend = proxyBackend({
  name: "nft",
  proxyMode: "nftables",
  healthPort: 10_272,
  description: "serve Services with nftables rules on this node, beside kube-proxy or in its place",
  defaultNodePortAddresses: "primary",
  options: nftOptions,
  examples: `
Examples:
  # as kube-proxy would be started
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print the commands that would be executed, without executing them
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the rules? exit code 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # delete the tables
  COMMAND --cleanup

Rules stay when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeProxy,
});

/** Returns the proxy for parsed options. */
function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy {
  const settings = readNftSettings(options, serviceProxyName);
  return {
    wantsLoopbackNodePorts: false,
    openRuleSets: async (host) => ({ ruleSets: await openRuleSets(settings, host) }),
    cleanUp: ({ log }) => deleteTables(settings.table, log),
  };
}

/**
 * Returns the settings from parsed options. Each instance has its own tables, named `kpng`, or `kpng-` followed by a
 * hash of the service proxy name.
 */
function readNftSettings(options: ParsedOptions, serviceProxyName: string): TableSettings {
  const hash = createHash("sha256").update(serviceProxyName).digest("hex").slice(0, 8);
  return {
    table: serviceProxyName === "" ? "kpng" : `kpng-${hash}`,
    masqueradeBit: Number(options.nftablesMasqueradeBit ?? 14),
    maxClients: Number(options.maxAffinityClients ?? 1_000_000),
  };
}
