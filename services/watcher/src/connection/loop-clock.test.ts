import { setImmediate as turn } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { LoopClock } from "./loop-clock.ts";

const clock = new LoopClock(5);
afterEach(() => clock.stop());

test("deadlines are met in the order of their times, and one that is taken back is not", async () => {
  clock.start();
  const called: string[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  clock.after(60, resolve);
  clock.after(30, () => called.push("late"));
  clock.after(0, () => called.push("soon"));
  clock.after(10, () => called.push("never"))();
  await promise;
  expect(called).toEqual(["soon", "late"]);
});

test("a loop that is held up is no time that passes", async () => {
  clock.start();
  let isOver = false;
  clock.after(100, () => {
    isOver = true;
  });
  // Ten times the deadline, after which timers run before sockets.
  await turn();
  const untilMs = performance.now() + 1_000;
  while (performance.now() < untilMs);
  await turn();
  await turn();
  expect(isOver).toBe(false);
  await expect.poll(() => isOver).toBe(true);
});
