import { release } from "node:os";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import type { ProxyHost } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import { families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { NftablesConnection, RulesetChanges } from "../netlink/nftables-connection.ts";
import { readOwnObjects } from "../read/read-table.ts";
import { ipOf } from "../render/skeleton.ts";
import { NftTable, type TableSettings } from "./nft-table.ts";
import { PrintedRuleSet } from "./printed-rule-set.ts";
import { applyNft, checkVersions } from "./run-nft.ts";

/**
 * Opens a rule set for each IP family that the node supports, IPv4 first. Depending on `destination`, it is installed
 * in the kernel or printed. Errors: NFT_UNSUPPORTED if nft or the kernel is missing or too old, NETLINK_UNAVAILABLE.
 */
export async function openRuleSets(
  settings: TableSettings,
  { destination }: ProxyHost,
): Promise<readonly (NftTable | PrintedRuleSet)[]> {
  await checkVersions(release());
  const changes = new RulesetChanges();
  const options = nodeFamilies().map((family) => {
    return { ...settings, family, connection: new NftablesConnection(changes) };
  });
  if (destination.kind !== "kernel") {
    const print = destination.kind === "print" ? destination.print : undefined;
    return options.map((each) => new PrintedRuleSet({ ...each, print }));
  }
  return options.map((each) => new NftTable(each));
}

/**
 * Deletes the tables of an instance. Errors: the first failure, thrown after deletion of every table has been
 * attempted.
 */
export async function deleteTables(table: string, log: Log): Promise<void> {
  const connection = new NftablesConnection();
  const failures = new CleanupFailures(log);
  for (const family of families) {
    const id = { family, name: table };
    await failures.attempt(async () => {
      if ((await readOwnObjects(connection, id)) === undefined) return;
      await applyNft(`delete table ${ipOf(family)} ${table}\n`);
      log.info("table deleted", { family, table });
    });
  }
  failures.end();
}
