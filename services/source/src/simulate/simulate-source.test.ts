import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { makeRandom } from "@kpng/process/random.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { expect, test } from "vitest";
import type { ClusterSink } from "../source.ts";
import { randomChanges } from "./random-changes.ts";
import { type SimulateSourceOptions, simulateSource } from "./simulate-source.ts";
import { makeCluster } from "./synthetic.ts";

const shape = { services: 40, endpoints: 3, nodes: 5 };

/** Runs a source until `endMs` of a clock whose waits end at once, `lateMs` after their time. */
async function simulate(endMs: number, options: Partial<SimulateSourceOptions>, lateMs = () => 0): Promise<void> {
  let nowMs = 0;
  const stop = new AbortController();
  const clock = {
    nowMs: () => nowMs,
    wait: async (ms: number) => {
      nowMs += ms + lateMs();
      if (nowMs > endMs) stop.abort();
    },
  };
  const plain = { shape, rate: 0, random: makeRandom(1), sink: new Store() };
  const source = simulateSource({ ...plain, log: createLog("off"), health: new Health(), clock, ...options });
  await source.run(stop.signal);
}

/** The state after a number of changes. */
function after(count: number, seed: number): Store {
  const store = new Store();
  store.replace(makeCluster(shape));
  const changes = randomChanges(shape, makeRandom(seed));
  for (let index = 0; index < count; index++) store.apply(changes.next().value.changes);
  return store;
}

test("each simulated change changes the state, and the same seed leads to the same state", () => {
  const store = after(500, 7);
  expect(store.snapshot.revision).toBe(501);
  const { services, slicesByService } = after(500, 7).snapshot;
  expect([...services.values()]).toEqual([...store.snapshot.services.values()]);
  expect([...slicesByService.values()]).toEqual([...store.snapshot.slicesByService.values()]);
  expect([...after(500, 8).snapshot.slicesByService.values()]).not.toEqual([...slicesByService.values()]);
});

test("over time there is every kind of change, and at most a tenth of the Services is deleted", () => {
  const kinds = new Set<string>();
  const store = new Store();
  store.replace(makeCluster(shape));
  const changes = randomChanges(shape, makeRandom(3));
  for (let index = 0; index < 2_000; index++) {
    const { kind, changes: objects } = changes.next().value;
    kinds.add(kind);
    store.apply(objects);
    const { services, slicesByService } = store.snapshot;
    expect(services.size).toBeGreaterThanOrEqual(36);
    expect(slicesByService.size).toBe(services.size);
  }
  expect([...kinds].sort()).toEqual(["creation", "deletion", "readiness", "rollout"]);
});

test("the source makes as many changes as the time allows, also if it was held up", async () => {
  const store = new Store();
  const revisions: number[] = [];
  store.observe(({ next }) => revisions.push(next.revision));
  await simulate(3_000, { rate: 10, sink: store }, () => (revisions.length === 3 ? 900 : 0));
  const counts = [...after(30, 1).snapshot.slicesByService.values()];
  // 20 changes at their time, and the ten of the second that was lost in one revision.
  expect(revisions.length).toBeGreaterThan(15);
  expect(revisions.length).toBeLessThan(25);
  expect([...store.snapshot.slicesByService.values()]).toEqual(counts);
});

test.each([
  ["mass-deletion", [40, 0, 40, 0, 40]],
  ["older", [40, 40, 40]],
] as const)("the fault %s replaces the state every 20 s", async (fault, expected) => {
  const counts: number[] = [];
  const sink: ClusterSink = new Store();
  sink.replace = ({ services = [] }) => void counts.push(services.length);
  await simulate(50_000, { fault, sink });
  expect(counts).toEqual(expected);
});
