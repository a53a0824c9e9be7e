import { service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { expect, test } from "vitest";
import { diffViews } from "../state/diff-views.ts";
import { createGate, createReadableLog, type Gate } from "../testing/steps.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import { FullSyncRequests } from "./full-sync-requests.ts";
import { SyncLoop, type SyncPace } from "./sync-loop.ts";

const second = 1_000;
const minute = 60 * second;

/** A loop whose syncs a test watches; each is shown as `seconds mode/reason changed Services`. */
async function run(pace: SyncPace, steps: (parts: Parts) => Promise<void>): Promise<readonly string[]> {
  const clock = new ManualClock();
  const shown: string[] = [];
  let gate: Gate | undefined;
  let failure: Error | undefined;
  const sync = async (update: SyncUpdate): Promise<void> => {
    const keys = update.changes.map((change) => ("key" in change ? change.key : change.kind));
    const mode = update.mode === "full" ? `full/${update.fullReason}` : update.mode;
    shown.push(`${clock.nowMs() / second} ${[mode, ...keys].join(" ")}`);
    await gate?.opened;
    if (failure !== undefined) throw failure;
  };
  const { log } = createReadableLog();
  const { nowMs, wait } = clock;
  const options = { name: "test", sync, log, health: new Health(), nowMs, wait, errorDelayMs: 4 * second };
  const loop = new SyncLoop({ ...options, ...pace });
  let world = view([]);
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  const offer = (...names: readonly string[]): void => {
    const next = view(names.map((name) => service(name)));
    const changes = diffViews(world, next, new Set([...world.services.keys(), ...next.services.keys()]));
    world = next;
    loop.offer({ view: next, changes, isFirst: false, revision: 1n, instance: "" });
  };
  await steps({
    clock,
    offer,
    hold: () => {
      const held = createGate();
      gate = held;
      return () => {
        gate = undefined;
        held.open();
      };
    },
    fail: (error) => {
      failure = error;
    },
  });
  stop.abort();
  await running;
  return shown;
}

interface Parts {
  readonly clock: ManualClock;
  /** The Services that there are now. */
  readonly offer: (...names: readonly string[]) => void;
  /** Makes syncs take until the function that is returned is called. */
  readonly hold: () => () => void;
  readonly fail: (error: Error | undefined) => void;
}

test("the first sync is full and begins at once, the next are partial and wait for the shortest interval", async () => {
  const shown = await run({ minIntervalMs: second }, async ({ clock, offer }) => {
    offer("a/1");
    await clock.settle();
    offer("a/1", "a/2");
    offer("a/1", "a/2", "a/3");
    await clock.advance(999);
    offer("a/1", "a/3");
    await clock.advance(second);
    await clock.advance(minute);
    offer("a/3");
    await clock.settle();
  });
  expect(shown).toEqual(["0 full/start put-node a/1", "1 partial a/3", "61.999 partial a/1"]);
});

test("the shortest interval counts from the end of a sync, and what arrives during one is merged", async () => {
  const shown = await run({ minIntervalMs: second }, async ({ clock, offer, hold }) => {
    const release = hold();
    offer("a/1");
    await clock.advance(10 * second);
    for (let count = 2; count < 100; count++) offer("a/1", `a/${count}`);
    release();
    await clock.advance(minute);
  });
  expect(shown).toEqual(["0 full/start put-node a/1", "11 partial a/99"]);
});

test("a full sync comes after the longest interval, counted from the last full one, and not before there is a view", async () => {
  const shown = await run({ minIntervalMs: second, maxIntervalMs: minute }, async ({ clock, offer }) => {
    await clock.advance(5 * minute);
    offer("a/1");
    await clock.advance(30 * second);
    offer("a/2");
    await clock.advance(95 * second);
  });
  expect(shown).toEqual([
    "300 full/start put-node a/1",
    "330 partial a/2 a/1",
    "360 full/interval",
    "420 full/interval",
  ]);
});

test("what waits when a full sync is due goes with it", async () => {
  const shown = await run({ minIntervalMs: 30 * second, maxIntervalMs: 35 * second }, async ({ clock, offer }) => {
    offer("a/1");
    await clock.advance(31 * second);
    offer("a/2");
    await clock.advance(second);
    offer("a/3");
    await clock.advance(30 * second);
  });
  expect(shown).toEqual(["0 full/start put-node a/1", "31 partial a/2 a/1", "61 full/interval a/3 a/2"]);
});

test("after a failure the next sync is full and has all changes since the last success, even if they undid themselves", async () => {
  const shown = await run({}, async ({ clock, offer, fail }) => {
    offer("a/1");
    await clock.settle();
    fail(new Error("refused"));
    offer("a/1", "a/2");
    await clock.settle();
    offer("a/1");
    fail(undefined);
    await clock.advance(minute);
  });
  expect(shown.map((line) => line.replace(/^\S+ /, ""))).toEqual([
    "full/start put-node a/1",
    "partial a/2",
    "full/failure",
  ]);
});

test("a request makes the next sync full, several make one, and none is made before there is a view", async () => {
  const fullSyncRequests = new FullSyncRequests();
  const shown = await run({ minIntervalMs: second, fullSyncRequests }, async ({ clock, offer }) => {
    fullSyncRequests.request("early");
    await clock.settle();
    offer("a/1");
    await clock.settle();
    for (const reason of ["flushed", "again"]) fullSyncRequests.request(reason);
    await clock.advance(minute);
  });
  expect(shown).toEqual(["0 full/start put-node a/1", "1 full/flushed"]);
});

test("observers see each step; an update without changes is none, and changes that undo each other need no sync", async () => {
  const seen: string[] = [];
  const observer = {
    queued: () => seen.push("queued"),
    settled: () => seen.push("settled"),
    started: () => seen.push("started"),
    succeeded: () => seen.push("succeeded"),
    failed: () => seen.push("failed"),
  };
  await run({ observers: [observer] }, async ({ clock, offer, fail }) => {
    fail(new Error("refused"));
    offer("a/1");
    await clock.settle();
    offer("a/1");
    fail(undefined);
    await clock.advance(minute);
    offer("a/2");
    offer("a/1");
    await clock.settle();
  });
  expect(seen).toEqual(["queued", "started", "failed", "started", "succeeded", "queued", "queued", "settled"]);
});

test("a stream of changes leaves the event loop to others", async () => {
  let turns = 0;
  await run({}, async ({ offer }) => {
    const timer = setInterval(() => turns++, 1);
    const endMs = performance.now() + 100;
    for (let count = 0; performance.now() < endMs; count++) {
      offer(`a/${count}`);
      await new Promise(setImmediate);
    }
    clearInterval(timer);
  });
  expect(turns).toBeGreaterThan(5);
});
