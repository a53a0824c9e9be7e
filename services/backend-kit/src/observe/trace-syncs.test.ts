import { InMemoryTracing } from "@kpng/process/testing/in-memory-tracing.ts";
import { formatTraceparent } from "@kpng/process/trace/tracing.ts";
import { expect, test } from "vitest";
import { syncUpdate } from "../testing/sync-update.ts";
import type { SyncTimes, SyncUpdate } from "../types/sync-update.ts";
import { type Arrival, mergeArrivals } from "../types/sync-update.ts";
import { recordsTrace, TraceSyncs } from "./trace-syncs.ts";

/** The change number `number`, as another process knows it. */
function change(number: number): string {
  const text = number.toString(16);
  return formatTraceparent({ traceId: text.padStart(32, "a"), spanId: text.padStart(16, "b") });
}

function arrival(parts: Partial<Arrival>): Arrival {
  return { receivedAtMs: 110, storedAtMs: 100, triggeredAtMs: [], traceparents: [change(1)], tracedNodes: 1, ...parts };
}

function update(came: Arrival | undefined, parts: Partial<SyncUpdate> = {}): SyncUpdate {
  return syncUpdate({ arrival: came, ...parts });
}

const times: SyncTimes = { receivedAtMs: 110, startedAtMs: 130, renderedAtMs: 160, endedAtMs: 200 };

/** Returns the recorded spans, also as `name from-to`. */
function record(act: (syncs: TraceSyncs) => void, nodeName = "n1") {
  const tracing = new InMemoryTracing();
  act(new TraceSyncs({ tracing, nodeName, backend: "test" }));
  return {
    spans: tracing.spans,
    shown: tracing.spans.map(({ name, startMs, endMs }) => `${name} ${startMs}-${endMs}`),
  };
}

test.each([
  ["nothing that was received caused it", undefined, {}],
  ["no change in it is traced", arrival({ traceparents: [] }), {}],
  ["it is the first view of a node that starts", arrival({}), { isFirst: true }],
])("nothing is recorded if %s", (_when, came, parts) => {
  expect(record((syncs) => syncs.succeeded(update(came, parts), times)).spans).toEqual([]);
});

test("a sync of several changes is in the trace of the newest, and linked to the others", () => {
  const came = mergeArrivals(arrival({}), arrival({ receivedAtMs: 125, storedAtMs: 120, traceparents: [change(2)] }));
  const { spans, shown } = record((syncs) => syncs.succeeded(update(came), times));
  expect(spans.at(-1)).toMatchObject({ parent: change(2), links: [change(1)] });
  // The first was received before the second was stored: of the second's time none is left out or counted twice.
  expect(shown.slice(0, 2)).toEqual(["backend.receive 120-120", "backend.wait 120-130"]);
});

test("no stage is negative if the watcher's clock is ahead", () => {
  const { spans } = record((syncs) => syncs.succeeded(update(arrival({ storedAtMs: 5_000 })), times));
  expect(spans.every(({ startMs, endMs }) => startMs <= endMs)).toBe(true);
  expect(spans.at(-1)).toMatchObject({ startMs: 130, endMs: 200 });
});

test("of failed attempts in a row only the first is recorded, and then the success, from the end of the last failure", () => {
  const later = (ms: number): SyncTimes => ({
    receivedAtMs: 110,
    startedAtMs: 130 + ms,
    renderedAtMs: 160 + ms,
    endedAtMs: 200 + ms,
  });
  const { spans } = record((syncs) => {
    syncs.failed(update(arrival({})), "refused", later(0));
    syncs.failed(update(arrival({})), "refused", later(100));
    syncs.succeeded(update(arrival({})), later(300));
  });
  const applied = spans.filter(({ name }) => name === "backend.apply");
  expect(applied.map(({ startMs, endMs, error }) => ({ startMs, endMs, error }))).toEqual([
    { startMs: 100, endMs: 200, error: "refused" },
    { startMs: 300, endMs: 500, error: undefined },
  ]);
});

test("of 5 000 nodes about 50 record a trace, different ones for each trace, and ten times as many if they are slow", () => {
  const names = Array.from({ length: 5_000 }, (_, index) => `node-${index}`);
  const came = arrival({ tracedNodes: 50 / names.length });
  const recording = (traced: Arrival, at: SyncTimes) =>
    names.filter((name) => record((syncs) => syncs.succeeded(update(traced), at), name).spans.length > 0);
  const quick = recording(came, times);
  expect(quick.length).toBeGreaterThan(25);
  expect(quick.length).toBeLessThan(75);
  expect(recording({ ...came, traceparents: [change(2)] }, times)).not.toEqual(quick);
  const slow = recording(came, { ...times, endedAtMs: 2_000 });
  expect(slow.length).toBeGreaterThan(400);
  expect(slow.length).toBeLessThan(600);
  expect(slow).toEqual(expect.arrayContaining(quick));
});

test.each([
  ["above 1: every node", change(3), 7, true],
  ["0: none", change(3), 0, false],
  ["no traceparent: none", "what", 1, false],
])("share %s", (_what, traceparent, share, wanted) => {
  expect(recordsTrace(traceparent, "n1", share)).toBe(wanted);
});
