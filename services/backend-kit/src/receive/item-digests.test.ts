import { create } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { encodeBuckets, itemBucket } from "@kpng/model/wire/digest.ts";
import { expect, test } from "vitest";
import { putEndpoint, putService, reset } from "../testing/ops.ts";
import { ItemDigests } from "./item-digests.ts";

function after(...ops: OpItem[]): ItemDigests {
  const items = new ItemDigests();
  for (const op of ops) items.stage(op);
  items.commit();
  return items;
}

test("an item outside the buckets of Keep is deleted unless it is put again, endpoints before their Service", () => {
  const items = after(reset, putService("n/a"), putEndpoint("n/a/p"), putService("n/b"), putService("n/c"));
  const services = ["n/a", "n/b"].map((path) => itemBucket(SetName.ServicesSet, path));
  const lost = [...services, itemBucket(SetName.EndpointsSet, "n/a/p")];
  const Buckets = encodeBuckets((bucket) => !lost.includes(bucket));
  const changed = putService("n/b", "10.0.0.9");
  for (const op of [create(OpItemSchema, { Op: { case: "Keep", value: { Buckets } } }), changed]) items.stage(op);
  expect(items.commit().map((ref) => ref.Path)).toEqual(["n/a/p", "n/a"]);
  expect(items.buckets).toEqual(after(reset, changed, putService("n/c")).buckets);
});
