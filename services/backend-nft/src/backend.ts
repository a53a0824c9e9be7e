import { release } from "node:os";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/node-families.ts";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ProxyHost } from "@kpng/backend-kit/proxy/proxy-host.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { families } from "@kpng/model/address.ts";
import { shadowMode } from "@kpng/shadow/shadow-mode.ts";
import type { NftChange } from "./commit/nft-change.ts";
import { NftRuleSet } from "./commit/nft-rule-set.ts";
import { observeAffinity } from "./commit/observe-affinity.ts";
import { openConnection } from "./commit/open-connection.ts";
import { PrintedRuleSet } from "./commit/printed-rule-set.ts";
import { RunNft } from "./commit/run-nft.ts";
import { RulesetChanges } from "./netlink/ruleset-changes.ts";
import { nftOptions, readNftSettings } from "./nft-options.ts";
import { readOwnObjects } from "./read/own-objects.ts";

/**
 * The backend that serves Services with nftables rules. The program kpng-nft (`main.ts`) runs it, and package cli runs
 * it as `kpng SOURCE to-nft`.
 *
 * This file only declares the backend and connects parts; `NftRuleSet` installs the rules, and `nft-options.ts` has the
 * options.
 */
export const nftBackend = proxyBackend<NftChange>({
  name: "nft",
  proxyMode: "nftables",
  description: "serve Services with nftables rules on this node, beside kube-proxy or in its place",
  defaultNodePortAddresses: "primary",
  options: nftOptions,
  alternatives: [shadowMode("nft", "nftables")],
  examples: `
Examples:
  # as kube-proxy would be started
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # print the commands that would be executed, without executing them
  COMMAND --node-name n1 --once --dry-run

  # has another program changed the rules? exit status 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # beside kube-proxy: which packets would be treated differently?
  COMMAND --node-name n1 --shadow

  # delete the tables
  COMMAND --cleanup

Rules stay when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeProxy,
});

/** Returns the proxy for parsed options. `proxyBackend` of backend-kit calls it. */
function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<NftChange> {
  const { table, masqueradeBit, maxClients, timeoutMs, elementsThrough } = readNftSettings(options, serviceProxyName);
  const openAll = (runNft: RunNft, host: ProxyHost): readonly (NftRuleSet | PrintedRuleSet)[] => {
    const { destination, log, metrics } = host;
    const changes = new RulesetChanges();
    const common = nodeFamilies().map((family) => {
      const connection = openConnection(elementsThrough, runNft, log, changes);
      return { family, table, masqueradeBit, maxClients, connection, runNft };
    });
    if (destination.kind !== "kernel") {
      const print = destination.kind === "print" ? destination.print : undefined;
      return common.map((options) => new PrintedRuleSet({ ...options, print }));
    }
    const tables = common.map(({ family, connection }) => ({ id: { family, name: table }, connection }));
    observeAffinity(metrics, tables);
    return common.map((options) => new NftRuleSet(options));
  };
  return {
    rulesName: table,
    wantsLoopbackNodePorts: false,
    openRuleSets: async (host) => {
      const runNft = new RunNft(timeoutMs);
      await runNft.checkVersions(release());
      return { ruleSets: openAll(runNft, host) };
    },
    cleanUp: async ({ log }) => {
      const runNft = new RunNft(timeoutMs);
      const connection = openConnection(elementsThrough, runNft, log);
      const failures = new CleanupFailures(log);
      for (const family of families) {
        const id = { family, name: table };
        await failures.attempt(async () => {
          if ((await readOwnObjects(connection, id)) === undefined) return;
          await runNft.deleteTable(id);
          log.info("table deleted", { family, table });
        });
      }
      failures.end();
    },
  };
}
