import type { InstalledState } from "@kpng/backend-kit/proxy/rule-record.ts";
import { recordKey } from "../layout/element-keys.ts";
import type { TableId } from "../netlink/element-batch.ts";
import type { TableConnection } from "../netlink/table-connection.ts";
import { firstHook } from "../render/skeleton.ts";
import { readOwnObjects } from "./own-objects.ts";
import { readRules } from "./read-rules.ts";

/**
 * Reads which rules an earlier run has left in our table: "marked" with the record of these rules, "unmarked" without
 * one, or "absent". A table with a record counts even if its hooks are missing, because these can be restored.
 *
 * `NftRuleSet` calls it for `FamilyRules` of backend-kit, which then decides how a saved view is used. The layout of
 * the table is not part of the record: a table of another layout is refused.
 *
 * Errors: READ_FAILED, TABLE_NOT_OURS.
 */
export async function readInstalledState(connection: TableConnection, id: TableId): Promise<InstalledState> {
  const objects = await readOwnObjects(connection, id);
  if (objects === undefined) return { kind: "absent" };
  const hasRecords = objects.shared.has("record");
  const record = hasRecords ? (await connection.readElements(id, "record", "comment")).get(recordKey) : undefined;
  if (record !== undefined) return { kind: "marked", record };
  return { kind: (await readRules(connection, id)).has(firstHook) ? "unmarked" : "absent" };
}
