import { expect, test } from "vitest";
import { WallClock } from "./wall-clock.ts";

test("it has fractions, and stays within the millisecond of the system's clock", () => {
  let monotonicMs = 5.25;
  let trueMs = 1_000.75;
  const clock = new WallClock(
    () => Math.floor(trueMs),
    () => monotonicMs,
    995.5,
  );
  expect(clock.now()).toBe(1_000.75);
  // The monotonic clock runs slow: 10 ms of it are 12 in the world.
  monotonicMs += 10;
  trueMs += 12;
  expect(Math.abs(clock.now() - trueMs)).toBeLessThanOrEqual(1);
});

test("it follows a clock that is set, in both directions", () => {
  let dateMs = 50_000;
  const clock = new WallClock(
    () => dateMs,
    () => 0,
    50_000,
  );
  dateMs = 90_000;
  expect(clock.now()).toBe(90_000);
  dateMs = 10_000;
  expect(clock.now()).toBe(10_001);
});

test("a pause while it is read moves nothing", () => {
  let dateMs = 1_000;
  const clock = new WallClock(
    () => dateMs,
    () => {
      // The thread is put aside for 40 ms between the clocks.
      dateMs += 40;
      return 0;
    },
    1_010,
  );
  expect(clock.now()).toBe(1_010);
});
