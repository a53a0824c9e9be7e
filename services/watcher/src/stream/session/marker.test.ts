import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { EmptyOpSchema, OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { expect, test } from "vitest";
import { frameOf, messageIn, setFrame } from "../../items/frames.ts";
import { Marker } from "./marker.ts";

test("a marker with a digest decodes to the marker with that field", () => {
  const body = { Revision: 42n, Instance: "run", TakesAcks: true, AckIntervalMs: 100, TracedNodes: 0.5 };
  const op = { case: "Sync" as const, value: create(EmptyOpSchema, body) };
  const marker = new Marker(frameOf(toBinary(OpItemSchema, create(OpItemSchema, { Op: op }))));
  const changes = setFrame(SetName.ServicesSet, "a/b", Buffer.from("x"));
  for (const digest of [0n, 2n ** 64n - 1n]) {
    const decoded = fromBinary(OpItemSchema, messageIn(marker.withDigest(digest))).Op;
    expect(decoded).toEqual({ case: "Sync", value: create(EmptyOpSchema, { ...body, Digest: digest }) });
    const closing = Buffer.concat([changes, marker.withDigest(digest)]);
    expect(closing.equals(marker.closing(changes, digest))).toBe(true);
  }
});
