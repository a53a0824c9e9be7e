import { expect, test } from "vitest";
import { Scheduler } from "./scheduler.ts";

/**
 * A model of a mass reconnect in the time of a fake clock: nodes resume beside settled ones while changes arrive.
 * Costs are those of the bench `newcomers`, in milliseconds: a piece of work, and what it causes in the event loop.
 */
const update = { workMs: 0.01, ioMs: 0.03 };
const resume = { workMs: 1.2, ioMs: 0.5 };

interface Outcome {
  /** Ages of the changes at the settled nodes, in milliseconds. */
  readonly p99Ms: number;
  /** When the last node has resumed. */
  readonly resumedMs: number;
}

async function play({ settled = 1_000, resuming = 1_000, changesPerSecond = 12 }): Promise<Outcome> {
  let nowMs = 0;
  const scheduler = new Scheduler(() => nowMs);
  const ages: number[] = [];
  let [resumed, resumedMs] = [0, 0];
  let changeCount = 0;
  /** When the oldest change that is not part of a round was made; undefined if there is none. */
  let pendingMs: number | undefined;
  let isInRound = false;
  const take = ({ workMs, ioMs }: typeof update): void => {
    nowMs += workMs;
    process.nextTick(() => {
      nowMs += ioMs;
    });
  };
  const begin = (): void => {
    if (isInRound || pendingMs === undefined) return;
    isInRound = true;
    const madeMs = pendingMs;
    pendingMs = undefined;
    const advance = (): void => {
      take(update);
      ages.push(nowMs - madeMs);
    };
    for (let count = 0; count < settled + resumed; count += 1) scheduler.schedule("update", advance);
    scheduler.schedule("round", () => {
      isInRound = false;
    });
  };
  for (let count = 0; count < resuming; count += 1) {
    scheduler.schedule("begin", () => {
      take(resume);
      resumed += 1;
      resumedMs = nowMs;
    });
  }
  while (resumed < resuming) {
    await new Promise((resolve) => setImmediate(resolve));
    const due = Math.floor((nowMs / 1_000) * changesPerSecond);
    if (due > changeCount) pendingMs ??= ((changeCount + 1) * 1_000) / changesPerSecond;
    changeCount = due;
    begin();
  }
  ages.sort((a, b) => a - b);
  return { p99Ms: ages[Math.floor(ages.length * 0.99)] ?? 0, resumedMs };
}

test.each([12, 50])(
  "beside 1 000 nodes that resume, settled nodes have %i changes a second in time",
  async (changesPerSecond) => {
    const { p99Ms, resumedMs } = await play({ changesPerSecond });
    // 238 and 258 ms if lanes divide a round.
    expect(p99Ms).toBeLessThan(220);
    expect(resumedMs).toBeLessThan(8_000);
  },
);
