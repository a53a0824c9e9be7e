import { zstdDecompressSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { OpItemSchema, OpItemsSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { describe, expect, test } from "vitest";
import { deleteFrame, messageIn, packFrames, setFrame, valueIn } from "./frames.ts";

// Lengths around which the encoding of the length itself grows. No item is empty: each contains its name.
const lengths = [1, 100, 127, 128, 150, 16_383, 16_384, 2_097_151, 2_097_152];
const paths = ["a/b", "ä/b/€", `ns/${"n".repeat(120)}`, `ns/${"n".repeat(20_000)}`];

describe.each(paths.map((path) => ({ path, name: path.slice(0, 8) })))("a frame at $name", ({ path }) => {
  test.each(lengths)("with a value of %d bytes equals the library's encoding", (length) => {
    for (const set of [SetName.ServicesSet, SetName.NodesSet]) {
      const bytes = new Uint8Array(length).fill(7);
      const message = create(OpItemSchema, {
        Op: { case: "Set", value: { Ref: { Set: set, Path: path }, Bytes: bytes } },
      });
      const frame = setFrame(set, path, bytes);
      const encoded = Buffer.from(toBinary(OpItemSchema, message));
      expect(encoded.equals(messageIn(frame))).toBe(true);
      expect([frame[0], Buffer.from(frame).readUInt32BE(1)]).toEqual([0, encoded.length]);
      expect(Buffer.from(valueIn(frame)).equals(bytes)).toBe(true);
    }
  });
});

test("the frame of a delete equals the library's encoding", () => {
  const ref = { Set: SetName.EndpointsSet, Path: `ns/${"n".repeat(300)}` };
  const encoded = Buffer.from(toBinary(OpItemSchema, create(OpItemSchema, { Op: { case: "Delete", value: ref } })));
  expect(encoded.equals(messageIn(deleteFrame(ref.Set, ref.Path)))).toBe(true);
});

test("packFrames keeps the operations in order, in batches of a limited size", () => {
  const frames = Array.from({ length: 40 }, (_, index) =>
    setFrame(SetName.EndpointsSet, `ns/a/${index}`, new Uint8Array(index === 5 ? 900_000 : 40_000).fill(index)),
  );
  const packed = packFrames(frames).map((frame) => fromBinary(OpItemSchema, messageIn(frame)).Op);
  expect(packed.length).toBeGreaterThan(2);
  const unpacked = packed.flatMap((op) => {
    const bytes = zstdDecompressSync(op.case === "Batch" ? op.value.Items : Buffer.of());
    return fromBinary(OpItemsSchema, bytes).Items.map(({ Op: one }) =>
      one.case === "Set" ? `${one.value.Ref?.Path} ${one.value.Bytes.length} ${one.value.Bytes.at(-1)}` : one.case,
    );
  });
  expect(unpacked).toEqual(frames.map((_, index) => `ns/a/${index} ${index === 5 ? 900_000 : 40_000} ${index}`));
});
