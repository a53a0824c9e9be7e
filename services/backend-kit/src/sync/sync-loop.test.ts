import { service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { expect, test } from "vitest";
import { createGate, createReadableLog, type Gate } from "../testing/steps.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import { type PeriodicCheck, SyncLoop, type SyncPace, SyncRequests } from "./sync-loop.ts";

const second = 1_000;
const minute = 60 * second;

/** Runs a loop and returns its syncs, each as `seconds mode/reason changed Services`. */
async function run(
  pace: SyncPace | ((clock: ManualClock) => SyncPace),
  steps: (parts: Parts) => Promise<void>,
): Promise<readonly string[]> {
  const clock = new ManualClock();
  const shown: string[] = [];
  let gate: Gate | undefined;
  let failure: Error | undefined;
  const sync = async (update: SyncUpdate): Promise<void> => {
    const keys = [...update.touched];
    const mode = update.mode === "full" ? `full/${update.fullReason}` : update.mode;
    shown.push(`${clock.nowMs() / second} ${[mode, ...keys].join(" ")}`);
    await gate?.opened;
    if (failure !== undefined) throw failure;
  };
  const { log } = createReadableLog();
  const { nowMs, wait } = clock;
  const options = { name: "test", sync, log, health: new Health(), nowMs, wait, errorDelayMs: 4 * second };
  const loop = new SyncLoop({ ...options, ...(typeof pace === "function" ? pace(clock) : pace) });
  let world = view([]);
  let revision = 0n;
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  const offer = (...names: readonly string[]): void => {
    const next = { ...view(names.map((name) => service(name))), node: world.node };
    const touched = new Set(next.services.keys()).symmetricDifference(new Set(world.services.keys()));
    world = next;
    loop.offer({ ...unchanged, view: next, touched, revision: ++revision });
  };
  await steps({
    clock,
    offer,
    requireFull: (reason) => loop.offer({ ...unchanged, view: world, touched: new Set() }, reason),
    hold: () => {
      const syncGate = createGate();
      gate = syncGate;
      return () => {
        gate = undefined;
        syncGate.open();
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

const unchanged = { counts: { services: 0, endpoints: 0 }, isFirst: false, revision: 1n, instance: "" };

interface Parts {
  readonly clock: ManualClock;
  /** Offers the last view again, for a full sync. */
  readonly requireFull: (reason: string) => void;
  /** Offers a view with exactly these Services. */
  readonly offer: (...names: readonly string[]) => void;
  /** Blocks syncs until the returned function is called. */
  readonly hold: () => () => void;
  /** Makes the next syncs fail with an error, or succeed again. */
  readonly fail: (error: Error | undefined) => void;
}

/** A check that records when it ran, in seconds, and takes `tookMs`. */
function notes(seconds: number[], intervalMs: number, clock: ManualClock, tookMs = 0): PeriodicCheck {
  const run = async (signal: AbortSignal): Promise<void> => {
    seconds.push(clock.nowMs() / second);
    if (tookMs > 0) await clock.wait(tookMs, signal);
  };
  return { intervalMs, run };
}

test("the first sync is full and starts at once, later ones are partial and wait for the minimum interval", async () => {
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
  expect(shown).toEqual(["0 full/start a/1", "1 partial a/2 a/3", "61.999 partial a/1"]);
});

test("the minimum interval starts at the end of a sync, and updates that arrive during a sync are merged", async () => {
  const shown = await run({ minIntervalMs: second }, async ({ clock, offer, hold }) => {
    const release = hold();
    offer("a/1");
    await clock.advance(10 * second);
    for (let count = 2; count < 100; count++) offer("a/1", `a/${count}`);
    release();
    await clock.advance(minute);
  });
  expect(shown).toHaveLength(2);
  expect(shown[1]).toMatch(/^11 partial a\/2 a\/3 .* a\/99$/);
});

test("checks run once per interval, starting after the first sync", async () => {
  const checks: number[] = [];
  const pace = (clock: ManualClock) => ({ minIntervalMs: second, check: notes(checks, minute, clock) });
  const shown = await run(pace, async ({ clock, offer }) => {
    await clock.advance(5 * minute);
    offer("a/1");
    await clock.advance(30 * second);
    offer("a/2");
    await clock.advance(95 * second);
  });
  expect(shown).toEqual(["300 full/start a/1", "330 partial a/2 a/1"]);
  expect(checks).toEqual([300, 360, 420]);
});

test("the first check runs early, and a check never overlaps a sync", async () => {
  const steps: string[] = [];
  const check = (clock: ManualClock) => async () => void steps.push(`check ${clock.nowMs() / second}`);
  const pace = (clock: ManualClock) => ({ check: { intervalMs: minute, run: check(clock) } });
  await run(pace, async ({ clock, offer, hold }) => {
    offer("a/1");
    await clock.advance(second);
    const release = hold();
    offer("a/2");
    await clock.advance(9 * second);
    steps.push("sync ends");
    release();
    await clock.advance(second);
  });
  expect(steps).toEqual(["sync ends", "check 10"]);
});

test("checks run although no sync has succeeded, because one family's rules may be installed", async () => {
  const checks: number[] = [];
  const pace = (clock: ManualClock) => ({ check: notes(checks, minute, clock) });
  await run(pace, async ({ clock, offer, fail }) => {
    fail(new Error("the other family fails"));
    offer("a/1");
    await clock.advance(100 * second);
  });
  expect(checks).toHaveLength(2);
});

test.each([
  { tookMs: 5 * second, rule: "the interval", pauseMs: 10 * second },
  { tookMs: 2 * minute, rule: "its own duration, so that syncs have half of the time", pauseMs: 2 * minute },
])("a check that takes $tookMs ms is followed by a pause of $rule", async ({ tookMs, pauseMs }) => {
  const checks: number[] = [];
  const pace = (clock: ManualClock) => ({ check: notes(checks, 10 * second, clock, tookMs) });
  await run(pace, async ({ clock, offer }) => {
    offer("a/1");
    for (let count = 0; count < 300; count++) await clock.advance(second);
  });
  expect(checks.slice(0, 2)).toEqual([5, 5 + (tookMs + pauseMs) / second]);
});

test("constant changes do not prevent checks", async () => {
  const checks: number[] = [];
  await run(
    (clock) => ({ check: notes(checks, 10 * second, clock) }),
    async ({ clock, offer }) => {
      for (let count = 0; count < 40; count++) {
        offer(`a/${count}`);
        await clock.advance(second);
        offer(`b/${count}`);
      }
    },
  );
  expect(checks).toEqual([5, 15, 25, 35]);
});

test("the sync after a failure is full, with all Services touched since the last success", async () => {
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
  expect(shown.map((line) => line.replace(/^\S+ /, ""))).toEqual(["full/start a/1", "partial a/2", "full/failure a/2"]);
});

test("an update can require a full sync, even without a change", async () => {
  const shown = await run({ minIntervalMs: second }, async ({ clock, offer, requireFull }) => {
    offer("a/1");
    await clock.settle();
    for (const reason of ["saved", "again"]) requireFull(reason);
    await clock.advance(minute);
  });
  expect(shown).toEqual(["0 full/start a/1", "1 full/saved"]);
});

test("a requested partial sync runs at its time, even without a change", async () => {
  const requests = new SyncRequests();
  const shown = await run({ minIntervalMs: second, requests }, async ({ clock, offer }) => {
    offer("a/1");
    await clock.settle();
    requests.request(40 * second);
    requests.request(15 * second);
    await clock.advance(10 * second);
    offer("a/2");
    await clock.advance(minute);
  });
  expect(shown).toEqual(["0 full/start a/1", "10 partial a/2 a/1", "15 partial"]);
});

test("a requested sync after an update without changes has the revision of that update", async () => {
  const requests = new SyncRequests();
  const revisions: bigint[] = [];
  const observer = { succeeded: (update: SyncUpdate) => void revisions.push(update.revision) };
  await run({ requests, observers: [observer] }, async ({ clock, offer }) => {
    for (let count = 0; count < 2; count++) {
      offer("a/1");
      await clock.settle();
    }
    requests.request(15 * second);
    await clock.advance(minute);
  });
  expect(revisions).toEqual([1n, 2n]);
});

test("observers are called at each step, and an update without changes needs no sync", async () => {
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
    offer("a/1");
    await clock.settle();
  });
  expect(seen).toEqual(["queued", "started", "failed", "started", "succeeded", "settled"]);
});

test("constant changes leave time for other work of the event loop", async () => {
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
