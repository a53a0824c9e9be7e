import { zstdDecompressSync } from "node:zlib";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Encoding, OpItemSchema, OpItemsSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { describe, expect, test } from "vitest";
import { packFrames } from "../stream/delta/encoded-ops.ts";
import {
  batchFrame,
  deleteFrame,
  type Frame,
  keepFrame,
  messageIn,
  resetFrame,
  setFrame,
  syncFrame,
  valueIn,
} from "./frames.ts";

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
      const wanted = Buffer.from(toBinary(OpItemSchema, message));
      expect(wanted.equals(messageIn(frame))).toBe(true);
      expect([frame[0], Buffer.from(frame).readUInt32BE(1)]).toEqual([0, wanted.length]);
      expect(Buffer.from(valueIn(frame)).equals(bytes)).toBe(true);
    }
  });
});

const longPath = `ns/${"n".repeat(300)}`;
const ref = { Set: SetName.EndpointsSet, Path: longPath };
const body = {
  Revision: 42n,
  Instance: "run",
  TakesAcks: true,
  TakesCounts: true,
  AckIntervalMs: 100,
  TriggeredAtMs: [1_700_000_000_000n],
  StoredAtMicros: 1_700_000_000_000_500n,
  Traceparents: ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
  TracedNodes: 0.5,
  Position: {
    Source: "",
    ...{ Services: 7n, Slices: 42n, Nodes: 9n },
    ...{ CurrentServices: 43n, CurrentSlices: 44n, CurrentNodes: 45n },
  },
};
const buckets = new Uint8Array(128).fill(5);
const items = new Uint8Array(70_000).fill(6);

type Op = NonNullable<MessageInitShape<typeof OpItemSchema>["Op"]>;

test.each<{ readonly name: string; readonly frame: Frame; readonly op: Op }>([
  { name: "a delete", frame: deleteFrame(SetName.EndpointsSet, longPath), op: { case: "Delete", value: ref } },
  { name: "a reset", frame: resetFrame, op: { case: "Reset", value: {} } },
  { name: "a keep", frame: keepFrame(buckets), op: { case: "Keep", value: { Buckets: buckets } } },
  { name: "a plain sync marker", frame: syncFrame(), op: { case: "Sync", value: {} } },
  { name: "a sync marker", frame: syncFrame(body), op: { case: "Sync", value: body } },
  {
    name: "packed operations",
    frame: batchFrame(items, 80_000),
    op: { case: "Batch", value: { Encoding: Encoding.Zstd, Items: items, Size: 80_000 } },
  },
])("the frame of $name equals the library's encoding", ({ frame, op }) => {
  const wanted = Buffer.from(toBinary(OpItemSchema, create(OpItemSchema, { Op: op })));
  expect(wanted.equals(messageIn(frame))).toBe(true);
  expect(Buffer.from(frame).readUInt32BE(1)).toBe(wanted.length);
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
  const wanted = frames.map((_, index) => `ns/a/${index} ${index === 5 ? 900_000 : 40_000} ${index}`);
  expect(unpacked).toEqual(wanted);
});
