import { InMemoryTracing } from "@kpng/process/testing/in-memory-tracing.ts";
import type { Origin } from "@kpng/source/source.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { maxTraces } from "../store/snapshot.ts";
import { Store } from "../store/store.ts";
import { traceRevisions } from "./traces.ts";

function makeStore(tracing: InMemoryTracing): Store {
  const store = new Store({ trace: traceRevisions(tracing) });
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  return store;
}

// test/process/traces.test.ts checks the spans of a change.

test("a revision that is not sampled is not kept, and the newest traces are", () => {
  let isSampled = false;
  const tracing = new InMemoryTracing(() => isSampled);
  const store = makeStore(tracing);
  expect(tracing.spans).toEqual([]);
  expect(store.snapshot.traces).toEqual([]);
  isSampled = true;
  for (let i = 0; i <= maxTraces; i++) store.apply([{ kind: "put-slice", slice: slice([endpoint(`10.1.0.${i}`)]) }]);
  expect(store.snapshot.traces.map(({ revision }) => revision)).toEqual(
    Array.from({ length: maxTraces }, (_, index) => index + 3),
  );
});

test("a change has the times of what triggered it, if its slices have them", () => {
  const tracing = new InMemoryTracing();
  const store = makeStore(tracing);
  const attributesOf = (address: string, triggeredAtMs?: number) => {
    store.apply([{ kind: "put-slice", slice: slice([endpoint(address)], { triggeredAtMs }) }]);
    return tracing.spans.at(-1)?.attributes;
  };
  const name = "kpng.last_change_trigger_times";
  expect(attributesOf("10.1.0.1", 1_000)).toMatchObject({ [name]: ["1970-01-01T00:00:01.000Z"] });
  expect(Object.keys(attributesOf("10.1.0.2") ?? { [name]: [] })).not.toContain(name);
});

test("the trace of another watcher continues from when it stored the change, except for a first list", () => {
  const tracing = new InMemoryTracing();
  const parent = "00-11111111111111111111111111111111-2222222222222222-01";
  const other = "00-33333333333333333333333333333333-4444444444444444-01";
  const storedAtMs = Date.now() - 2_000;
  const origin: Origin = {
    source: "api",
    receivedAtMs: Date.now(),
    upstream: { traceparents: [parent, other], tracedNodes: 5, storedAtMs },
  };
  const store = new Store({ trace: traceRevisions(tracing) });
  store.replace({ services: [], slices: [], nodes: [] }, origin);
  expect(tracing.spans.at(-1)).toMatchObject({ name: "change", parent: undefined });
  store.apply([{ kind: "put-service", service: service() }], origin);
  expect(tracing.spans.at(-1)).toMatchObject({ name: "change", parent, links: [other], startMs: storedAtMs });
  expect(tracing.spans.at(-3)?.name).toBe("source.receive");
  expect(store.snapshot.traces.at(-1)?.nodes).toBe(5);
});
