import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import type { NftChange } from "@kpng/nftables/commit/nft-change.ts";
import { deleteTables, openRuleSets } from "@kpng/nftables/commit/open-rule-sets.ts";
import { nftOptions, readNftSettings } from "./nft-options.ts";

/**
 * The backend that serves Services with nftables rules. The program kpng-nft (`main.ts`) runs it, and package cli runs
 * it as `kpng SOURCE to-nft`.
 *
 * This file only declares the backend; package nftables installs the rules, and `nft-options.ts` has the options.
 */
export const nftBackend = proxyBackend<NftChange>({
  name: "nft",
  proxyMode: "nftables",
  description: "serve Services with nftables rules on this node, beside kube-proxy or in its place",
  defaultNodePortAddresses: "primary",
  options: nftOptions,
  examples: `
Examples:
  # as kube-proxy would be started
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print the commands that would be executed, without executing them
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the rules? exit status 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # delete the tables
  COMMAND --cleanup

Rules stay when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeProxy,
});

/** Returns the proxy for parsed options. `proxyBackend` of backend-kit calls it. */
function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<NftChange> {
  const settings = readNftSettings(options, serviceProxyName);
  return {
    rulesName: settings.table,
    wantsLoopbackNodePorts: false,
    openRuleSets: async (host) => ({ ruleSets: await openRuleSets(settings, host) }),
    cleanUp: ({ log }) => deleteTables(settings, log),
  };
}
