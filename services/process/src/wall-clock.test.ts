import { expect, test } from "vitest";
import { WallClock } from "./wall-clock.ts";

test("the time has fractions and stays within the millisecond of the system clock", () => {
  let monotonicMs = 5.25;
  let trueMs = 1_000.75;
  const clock = new WallClock(
    () => Math.floor(trueMs),
    () => monotonicMs,
    995.5,
  );
  expect(clock.now()).toBe(1_000.75);
  // The monotonic clock runs slow: it advances by 10 ms in 12 ms of real time.
  monotonicMs += 10;
  trueMs += 12;
  expect(Math.abs(clock.now() - trueMs)).toBeLessThanOrEqual(1);
});

test("the time follows a system clock that is set forwards or backwards", () => {
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

test("a pause between the reads of the two clocks does not change the offset", () => {
  let dateMs = 1_000;
  const clock = new WallClock(
    () => dateMs,
    () => {
      // The thread is descheduled for 40 ms between the two reads.
      dateMs += 40;
      return 0;
    },
    1_010,
  );
  expect(clock.now()).toBe(1_010);
});
