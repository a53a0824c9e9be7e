import { create, fromBinary } from "@bufbuild/protobuf";
import { EmptyOpSchema, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { messageIn } from "../../items/frames.ts";
import { Store } from "../../store/store.ts";
import { noChanges } from "../delta/projection.ts";
import { Marker, syncMarker } from "./marker.ts";
import { Subscribers } from "./subscribers.ts";

test("a marker with a digest decodes to the marker with that field", () => {
  const body = { Revision: 42n, Instance: "run", TakesAcks: true, AckIntervalMs: 100 };
  const marker = new Marker(body);
  for (const digest of [0n, 2n ** 64n - 1n]) {
    const decoded = fromBinary(OpItemSchema, messageIn(marker.withDigest(digest))).Op;
    expect(decoded).toEqual({ case: "Sync", value: create(EmptyOpSchema, { ...body, Digest: digest }) });
  }
});

test("the marker of a first batch has the revision and the position of its snapshot", () => {
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  const { snapshot, instance } = store;
  const batch = { snapshot, before: undefined, changes: noChanges };
  const { frame } = syncMarker(batch, new Subscribers(store, new Registry()), true);
  const versions = { Services: 1n, Slices: 1n, Nodes: 1n };
  expect(fromBinary(OpItemSchema, messageIn(frame)).Op.value).toMatchObject({
    ...{ Revision: 1n, Instance: instance, TakesAcks: true, TakesCounts: true, AckIntervalMs: 100 },
    TriggeredAtMs: [],
    Position: { ...versions, CurrentServices: 1n, CurrentSlices: 1n, CurrentNodes: 1n },
  });
});
