import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { expect, test } from "vitest";
import { readRevision, SyncReader } from "./sync-reader.ts";

type Op = MessageInitShape<typeof OpItemSchema>;

const sync = (value: Extract<NonNullable<Op["Op"]>, { case: "Sync" }>["value"]): Op => ({
  Op: { case: "Sync", value },
});
const item = (size: number): Op => ({
  Op: {
    case: "Set",
    value: { Ref: { Set: SetName.ServicesSet, Path: "d/s" }, Bytes: new Uint8Array(size).fill(0x0a) },
  },
});
const ops: readonly Op[] = [
  { Op: { case: "Reset", value: {} } },
  item(300),
  sync({ Revision: 1n, Instance: "run", Traceparents: ["00-".padEnd(55, "a")] }),
  item(0),
  sync({ Revision: 16_384n }),
  sync({}),
];

function encode(op: Op, flags = 0): Buffer {
  const message = toBinary(OpItemSchema, create(OpItemSchema, op));
  const prefix = Buffer.from([flags, 0, 0, 0, 0]);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

test("each Sync is found with its revision, wherever the stream is cut into pieces", () => {
  const stream = Buffer.concat(ops.map((op) => encode(op)));
  for (let size = 1; size <= stream.length; size += 1) {
    const revisions: bigint[] = [];
    const reader = new SyncReader((message) => revisions.push(readRevision(message)));
    for (let at = 0; at < stream.length; at += size) reader.read(stream.subarray(at, at + size));
    expect(revisions, `pieces of ${size} bytes`).toEqual([1n, 16_384n, 0n]);
  }
});

test("a compressed message is refused", () => {
  const reader = new SyncReader(() => undefined);
  expect(() => reader.read(encode(sync({}), 1))).toThrow("compressed");
});
