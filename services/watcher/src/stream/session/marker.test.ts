import { create, fromBinary } from "@bufbuild/protobuf";
import { EmptyOpSchema, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { messageIn } from "../../items/frames.ts";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import { Marker, markerTraces, syncMarker } from "./marker.ts";
import { Subscribers } from "./subscribers.ts";

test("a marker with a digest decodes to the marker with that field", () => {
  const body = { Revision: 42n, Instance: "run", TakesAcks: true, AckIntervalMs: 100, TracedNodes: 0.5 };
  const marker = new Marker(body);
  for (const digest of [0n, 2n ** 64n - 1n]) {
    const decoded = fromBinary(OpItemSchema, messageIn(marker.withDigest(digest))).Op;
    expect(decoded).toEqual({ case: "Sync", value: create(EmptyOpSchema, { ...body, Digest: digest }) });
  }
});

test("the marker of a first batch has the revision, the time and the position of its snapshot", () => {
  const store = new Store({ now: () => 1_700_000_000_000.5 });
  store.replace({ services: [], slices: [], nodes: [] });
  const { snapshot, instance } = store;
  const batch = { snapshot, before: undefined };
  const { frame } = syncMarker(batch, new Subscribers(store, new Registry()), true);
  const versions = { Services: 1n, Slices: 1n, Nodes: 1n };
  expect(fromBinary(OpItemSchema, messageIn(frame)).Op.value).toMatchObject({
    ...{ Revision: 1n, Instance: instance, TakesAcks: true, TakesCounts: true, AckIntervalMs: 100 },
    ...{ StoredAtMicros: 1_700_000_000_000_500n, TriggeredAtMs: [], Traceparents: [], TracedNodes: 0 },
    Position: { ...versions, CurrentServices: 1n, CurrentSlices: 1n, CurrentNodes: 1n },
  });
});

const nowMs = 100_000;

/** A snapshot after traced revisions; each was stored `age` milliseconds ago. */
function snapshot(revision: number, ages: Readonly<Record<number, number>>, nodes = 50): Snapshot {
  const traces = Object.entries(ages).map(([number, age]) => ({
    revision: Number(number),
    traceparent: `trace ${number}`,
    storedAtMs: nowMs - age,
    nodes,
  }));
  return { ...emptySnapshot, revision, traces };
}

const at = (revision: number): Snapshot => ({ ...emptySnapshot, revision });

test.each([
  ["the trace of the batch's revision is named", at(4), snapshot(5, { 5: 1 }), ["trace 5"]],
  ["traces are named newest first", at(2), snapshot(5, { 3: 9, 5: 1 }), ["trace 5", "trace 3"]],
  ["only traces of revisions in the batch are named", at(3), snapshot(5, { 3: 9 }), []],
  ["a trace is named however old it is", at(1), snapshot(5, { 2: 90_000 }), ["trace 2"]],
  ["a first batch names recent traces only", undefined, snapshot(5, { 2: 40_000, 4: 20_000 }), ["trace 4"]],
] as const)("%s", (_name, before, now, traces) => {
  expect(markerTraces({ before, snapshot: now }, 1, nowMs).traceparents).toEqual(traces);
});

test("the nodes that record their part are distributed over the streams", () => {
  const batch = (nodes: number) => ({ before: at(4), snapshot: snapshot(5, { 5: 1 }, nodes) });
  expect(markerTraces(batch(50), 5_000, nowMs).tracedNodes).toBe(0.01);
  expect(markerTraces(batch(50), 10, nowMs).tracedNodes).toBe(5);
  // A relay that received a share of 5 nodes and has 500 streams.
  expect(markerTraces(batch(5), 500, nowMs).tracedNodes).toBe(0.01);
  expect(markerTraces(batch(50), 0, nowMs).tracedNodes).toBe(50);
});
