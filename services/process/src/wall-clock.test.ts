import { afterEach, expect, test, vi } from "vitest";
import { wallClockMs } from "./wall-clock.ts";

afterEach(() => vi.restoreAllMocks());

test("the time stays within the millisecond of the system clock, also when that is set", () => {
  for (const dateMs of [Date.now(), 90_000, 10_000]) {
    vi.spyOn(Date, "now").mockReturnValue(dateMs);
    for (let count = 0; count < 3; count++) {
      expect(wallClockMs()).toBeGreaterThanOrEqual(dateMs);
      expect(wallClockMs()).toBeLessThanOrEqual(dateMs + 1);
    }
  }
});
