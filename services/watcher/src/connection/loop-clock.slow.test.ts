import { setImmediate as turn } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { LoopClock } from "./loop-clock.ts";

const clock = new LoopClock(5);
afterEach(() => clock.stop());

test("callbacks run in the order of their times, and a cancelled one does not run", async () => {
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

test("the clock stops while the event loop is blocked", async () => {
  clock.start();
  let isOver = false;
  clock.after(100, () => {
    isOver = true;
  });
  // Ten times the delay, after which timers run before sockets.
  await turn();
  const untilMs = performance.now() + 1_000;
  while (performance.now() < untilMs);
  await turn();
  await turn();
  expect(isOver).toBe(false);
  await expect.poll(() => isOver).toBe(true);
});
