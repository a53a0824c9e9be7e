import { release } from "node:os";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/node-families.ts";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import type { ProxyHost } from "@kpng/backend-kit/proxy/proxy-host.ts";
import { families } from "@kpng/model/address.ts";
import type { Log } from "@kpng/process/log.ts";
import { RulesetChanges } from "../netlink/ruleset-changes.ts";
import { readOwnObjects } from "../read/own-objects.ts";
import { NftRuleSet } from "./nft-rule-set.ts";
import { observeAffinity } from "./observe-affinity.ts";
import { type ElementsThrough, openConnection } from "./open-connection.ts";
import { PrintedRuleSet } from "./printed-rule-set.ts";
import { RunNft } from "./run-nft.ts";

/** Settings of the tables of one instance, one for each family. */
export interface TableSettings {
  /** Name of the tables. */
  readonly table: string;
  /** Bit of the packet mark that requests masquerade, 0 to 31. */
  readonly masqueradeBit: number;
  /** Maximum number of clients remembered for one Service port with affinity. */
  readonly maxClients: number;
  /** Longest run of the program nft, in milliseconds. */
  readonly timeoutMs: number;
  readonly elementsThrough: ElementsThrough;
}

/**
 * Opens a rule set for each IP family that the node supports, IPv4 first: in the kernel, or printed. Errors:
 * NFT_MISSING and NFT_UNSUPPORTED where the node lacks what this needs, NETLINK_UNAVAILABLE.
 */
export async function openRuleSets(
  settings: TableSettings,
  { destination, log, metrics }: ProxyHost,
): Promise<readonly (NftRuleSet | PrintedRuleSet)[]> {
  const { table, masqueradeBit, maxClients, timeoutMs, elementsThrough } = settings;
  const runNft = new RunNft(timeoutMs);
  await runNft.checkVersions(release());
  const changes = new RulesetChanges();
  const options = nodeFamilies().map((family) => {
    const connection = openConnection(elementsThrough, runNft, log, changes);
    return { family, table, masqueradeBit, maxClients, connection, runNft };
  });
  if (destination.kind !== "kernel") {
    const print = destination.kind === "print" ? destination.print : undefined;
    return options.map((each) => new PrintedRuleSet({ ...each, print }));
  }
  observeAffinity(
    metrics,
    options.map(({ family, connection }) => ({ id: { family, name: table }, connection })),
  );
  return options.map((each) => new NftRuleSet(each));
}

/** Deletes the tables of an instance. Errors: the first failure, after every table was tried. */
export async function deleteTables(
  { table, timeoutMs, elementsThrough }: Omit<TableSettings, "masqueradeBit" | "maxClients">,
  log: Log,
): Promise<void> {
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
}
