import { create } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema, RefSchema, ValueSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import type { ItemChange } from "./diff-items.ts";
import type { Projection } from "./projection.ts";
import type { Batch } from "./subscription.ts";

export const resetOp: OpItem = create(OpItemSchema, { Op: { case: "Reset", value: {} } });

/** Returns the marker that closes a batch; to a subscriber that is not extended it says nothing more, as KPNG's. */
export function syncOp(batch: Batch, instance: string, isExtended: boolean): OpItem {
  const value = isExtended ? { Revision: BigInt(batch.snapshot.revision), Instance: instance } : {};
  return create(OpItemSchema, { Op: { case: "Sync", value } });
}

export function changeOp(change: ItemChange, projection: Projection): OpItem {
  if (change.kind === "delete") {
    const value = create(RefSchema, { Set: projection.sections[change.section] ?? 0, Path: change.path });
    return create(OpItemSchema, { Op: { case: "Delete", value } });
  }
  const Ref = create(RefSchema, { Set: projection.sections[change.item.section] ?? 0, Path: change.item.path });
  return create(OpItemSchema, { Op: { case: "Set", value: create(ValueSchema, { Ref, Bytes: change.item.bytes }) } });
}
