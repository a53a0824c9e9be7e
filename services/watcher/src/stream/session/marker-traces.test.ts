import { expect, test } from "vitest";
import { emptySnapshot, type Snapshot } from "../../store/snapshot.ts";
import { markerTraces } from "./marker-traces.ts";

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
  { name: "the revision is traced", before: at(4), snapshot: snapshot(5, { 5: 1 }), traces: ["trace 5"] },
  { name: "newest first", before: at(2), snapshot: snapshot(5, { 3: 9, 5: 1 }), traces: ["trace 5", "trace 3"] },
  { name: "only what the batch leads through", before: at(3), snapshot: snapshot(5, { 3: 9 }), traces: [] },
  { name: "however old it is", before: at(1), snapshot: snapshot(5, { 2: 90_000 }), traces: ["trace 2"] },
  {
    name: "a stream that begins: what is recent",
    before: undefined,
    snapshot: snapshot(5, { 2: 40_000, 4: 20_000 }),
    traces: ["trace 4"],
  },
])("$name", ({ before, snapshot: now, traces }) => {
  expect(markerTraces({ before, snapshot: now }, 1, nowMs).traceparents).toEqual(traces);
});

test("the nodes that record their part are shared out among the streams", () => {
  const batch = (nodes: number) => ({ before: at(4), snapshot: snapshot(5, { 5: 1 }, nodes) });
  expect(markerTraces(batch(50), 5_000, nowMs).tracedNodes).toBe(0.01);
  expect(markerTraces(batch(50), 10, nowMs).tracedNodes).toBe(5);
  // A relay that stands for 5 of the nodes and has 500 of its own.
  expect(markerTraces(batch(5), 500, nowMs).tracedNodes).toBe(0.01);
  expect(markerTraces(batch(50), 0, nowMs).tracedNodes).toBe(50);
});
