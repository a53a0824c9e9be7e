import { expect, test } from "vitest";
import { measureRow } from "./measure-row.ts";

// A small run of the benchmark. No test checks a duration, because the machine may be busy.
test("after changes, each stream holds the view of the store, and has received one batch for each change", {
  timeout: 120_000,
}, async () => {
  const shape = { services: 100, endpoints: 10, nodes: 50 };
  const options = { shape, streams: 50, tls: undefined, changes: 20, isWarm: false, limitMs: 60_000 };
  // Rejects if a sampled stream does not hold the view of the store.
  const result = await measureRow(options, () => undefined);
  expect(result.checkedStreams).toBe(3);
  expect(result.single.latencies.count).toBe(options.streams * options.changes);
});
