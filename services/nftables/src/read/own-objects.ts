import { type SharedSet, sharedSets } from "../layout/set-names.ts";
import type { TableId } from "../netlink/element-batch.ts";
import { BackendNftError } from "../netlink/nft-error.ts";
import type { TableObjects } from "../netlink/read-objects.ts";
import type { TableConnection } from "../netlink/table-connection.ts";
import { ipOf, layoutChain } from "../render/skeleton.ts";

/** Objects of our table, those that other programs have added included; without anonymous sets. */
export interface OwnObjects extends TableObjects {
  /** Existing sets and maps that all Services share. */
  readonly shared: ReadonlySet<SharedSet>;
}

/**
 * Returns the chains and sets of our table, and which of the shared sets exist; undefined if the table does not exist.
 * O(chains and sets of all tables of the family).
 *
 * Both rule sets call it before a full sync, to find the chains and sets of an earlier run; so does
 * `readInstalledState`. `makeProxy` in `backend.ts` calls it for `--cleanup`, so that the table of another program is
 * not deleted. Elements are read by `readElements`.
 *
 * Errors: TABLE_NOT_OURS if another program, or a version with another layout, has made the table; READ_FAILED.
 */
export async function readOwnObjects(connection: TableConnection, id: TableId): Promise<OwnObjects | undefined> {
  const objects = await connection.listObjects(id);
  if (objects === undefined) return undefined;
  if (!objects.chains.includes(layoutChain)) {
    const table = `${ipOf(id.family)} ${id.name}`;
    throw new BackendNftError(
      "TABLE_NOT_OURS",
      `table ${table} exists without the chain ${layoutChain}: choose another --table-name, or delete it`,
    );
  }
  return {
    chains: objects.chains,
    // A rule's own set; it goes with the rule.
    sets: objects.sets.filter(({ name }) => !name.startsWith("__")),
    shared: new Set(sharedSets.filter((shared) => objects.sets.some(({ name }) => name === shared))),
  };
}
