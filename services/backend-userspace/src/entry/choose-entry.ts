import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { type Family, families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Entry, PortRange } from "./entry.ts";
import { MapEntry } from "./map-entry.ts";
import { RedirectEntry, runTool } from "./redirect-entry.ts";
import { BackendUserspaceError } from "./userspace-error.ts";

interface EntryOptions {
  readonly entry: "auto" | "redirect" | "map";
  readonly mapAddresses: Readonly<Partial<Record<Family, string>>>;
  readonly localPorts: PortRange;
  /** Name of the nftables table. */
  readonly tableName: string;
  readonly print: (line: string) => void;
  readonly log: Log;
}

/**
 * Returns an entry for each family, IPv4 first: of the kind that the option names; with "auto", `redirect` if this
 * process may commit to nftables, otherwise `map`. Logs the choice and its reason.
 *
 * Errors: ENTRY_UNAVAILABLE if `redirect` is named and not possible.
 */
export async function chooseEntries(options: EntryOptions): Promise<readonly Entry[]> {
  const { entry, log, mapAddresses, localPorts: ports, print } = options;
  let reason = "the option --entry or --map";
  if (entry !== "map") {
    try {
      const entries = await openRedirect(options);
      log.info("entry chosen", {
        entry: "redirect",
        reason: entry === "auto" ? "it is possible here" : "the option --entry",
      });
      return entries;
    } catch (error) {
      reason = `redirect is not possible: ${reasonOf(error)}`;
      if (entry === "redirect") {
        throw new BackendUserspaceError("ENTRY_UNAVAILABLE", `--entry ${reason}`, { cause: error });
      }
    }
  }
  log.info("entry chosen", { entry: "map", reason, ...mapAddresses });
  return families.flatMap((family) => {
    const address = mapAddresses[family];
    return address === undefined ? [] : [new MapEntry({ family, address, ports, print })];
  });
}

async function openRedirect({ tableName, localPorts }: EntryOptions): Promise<readonly Entry[]> {
  // Needs the rights for a transaction, and commits none.
  await runTool(["nft", "--check", "-f", "-"], `table ip ${tableName} {}\n`);
  return nodeFamilies().map((family) => new RedirectEntry({ family, table: tableName, ports: localPorts }));
}

/** Removes the tables that a killed run may have left on the node. */
export async function removeTables(tableName: string, log: Log): Promise<void> {
  for (const family of nodeFamilies()) {
    const ip = family === "v4" ? "ip" : "ip6";
    await runTool(["nft", "-f", "-"], `table ${ip} ${tableName} {}\ndelete table ${ip} ${tableName}\n`).catch(
      (error: unknown) => log.info("no table removed", { family, reason: reasonOf(error) }),
    );
  }
}
