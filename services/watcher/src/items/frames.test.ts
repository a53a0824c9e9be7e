import { zstdDecompressSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { OpItemSchema, OpItemsSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { describe, expect, test } from "vitest";
import { packFrames } from "../stream/delta/packed-frames.ts";
import { deleteFrame, messageIn, setFrame, valueIn } from "./frames.ts";

// Where the length of a length changes, and the field around it with it. No item is empty: each names itself.
const lengths = [1, 100, 127, 128, 150, 16_383, 16_384, 2_097_151, 2_097_152];
const paths = ["a/b", "ä/b/€", `ns/${"n".repeat(120)}`, `ns/${"n".repeat(20_000)}`];

describe.each(paths.map((path) => ({ path, name: path.slice(0, 8) })))("a frame at $name", ({ path }) => {
  test.each(lengths)("with a value of %d bytes is what protobuf makes of it", (length) => {
    for (const set of [SetName.ServicesSet, SetName.NodesSet]) {
      const bytes = new Uint8Array(length).fill(7);
      const message = create(OpItemSchema, {
        Op: { case: "Set", value: { Ref: { Set: set, Path: path }, Bytes: bytes } },
      });
      const frame = setFrame(set, path, bytes);
      const wanted = Buffer.from(toBinary(OpItemSchema, message));
      expect(wanted.equals(messageIn(frame))).toBe(true);
      expect([frame[0], Buffer.from(frame).readUInt32BE(1)]).toEqual([0, wanted.length]);
      expect(Buffer.from(valueIn(frame)).equals(bytes)).toBe(true);
    }
  });
});

test("packed frames hold the operations in their order, and none is cut", () => {
  const frames = Array.from({ length: 40 }, (_, index) =>
    index % 4 === 3
      ? deleteFrame(SetName.EndpointsSet, `ns/a/${index}`)
      : setFrame(SetName.EndpointsSet, `ns/a/${index}`, new Uint8Array(index === 5 ? 900_000 : 40_000).fill(index)),
  );
  const packed = packFrames(frames).map((frame) => fromBinary(OpItemSchema, messageIn(frame)).Op);
  expect(packed.length).toBeGreaterThan(2);
  const unpacked = packed.flatMap((op) => {
    if (op.case !== "Batch") throw new Error(`${op.case} among packed operations`);
    const bytes = zstdDecompressSync(op.value.Items);
    expect(bytes.length).toBe(op.value.Size);
    return fromBinary(OpItemsSchema, bytes).Items;
  });
  expect(unpacked.map((item) => Buffer.from(toBinary(OpItemSchema, item)).toString("base64"))).toEqual(
    frames.map((frame) => Buffer.from(messageIn(frame)).toString("base64")),
  );
  expect(packFrames([])).toEqual([]);
});
