import { create } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeBuckets, itemDigest } from "@kpng/model/wire/digest.ts";
import { expect, test } from "vitest";
import { ItemDigests } from "./item-digests.ts";

function put(path: string, text: string): OpItem {
  const value = { Ref: { Set: setOf(path), Path: path }, Bytes: Buffer.from(text) };
  return create(OpItemSchema, { Op: { case: "Set", value } });
}

const reset = create(OpItemSchema, { Op: { case: "Reset", value: {} } });

/** Keep with all buckets except those of the paths. */
function keepWithout(...paths: string[]): OpItem {
  const lost = paths.map((path) => itemDigest(setOf(path), path, new Uint8Array()).bucket);
  return create(OpItemSchema, {
    Op: { case: "Keep", value: { Buckets: encodeBuckets((bucket) => !lost.includes(bucket)) } },
  });
}

function setOf(path: string): SetName {
  return path.split("/").length === 2 ? SetName.ServicesSet : SetName.EndpointsSet;
}

function after(...batches: OpItem[][]): ItemDigests {
  const items = new ItemDigests();
  for (const batch of batches) {
    for (const op of batch) items.stage(op);
    items.commit();
  }
  return items;
}

test("an item outside the buckets of Keep is deleted unless it is put again, endpoints before their Service", () => {
  const items = after([reset, put("n/a", "1"), put("n/a/p", "2"), put("n/b", "3"), put("n/c", "4")]);
  for (const op of [keepWithout("n/a", "n/a/p", "n/b"), put("n/b", "5")]) items.stage(op);
  expect(items.commit().map((ref) => ref.Path)).toEqual(["n/a/p", "n/a"]);
  expect(items.buckets).toEqual(after([reset, put("n/b", "5"), put("n/c", "4")]).buckets);
});
