import { type Log, reasonOf } from "@kpng/process/log.ts";
import { BackendNftError } from "../netlink/nft-error.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import type { RulesetChanges } from "../netlink/ruleset-changes.ts";
import type { TableConnection } from "../netlink/table-connection.ts";
import { NftToolConnection } from "./nft-tool-connection.ts";
import type { RunNft } from "./run-nft.ts";

/** Option `--elements-through`: how elements are read and written; "auto" is netlink if it can be used. */
export type ElementsThrough = "auto" | "netlink" | "nft";

/**
 * Opens a connection to nftables. `makeProxy` in `backend.ts` calls it for each family, with the same `changes`. With
 * "auto", a netlink socket that cannot be opened is logged, and the program nft takes its place.
 *
 * Errors: NETLINK_UNAVAILABLE with "netlink".
 */
export function openConnection(
  through: ElementsThrough,
  runNft: RunNft,
  log: Log,
  changes?: RulesetChanges,
): TableConnection {
  if (through === "nft") return new NftToolConnection(runNft);
  try {
    return new NftablesConnection(changes);
  } catch (error) {
    if (through === "netlink" || !(error instanceof BackendNftError)) throw error;
    log.error("no netlink socket: elements are read and written by the program nft, which takes longer", {
      reason: reasonOf(error),
    });
    return new NftToolConnection(runNft);
  }
}
