import { expect, test } from "vitest";
import { Alarm } from "./clock.ts";
import { ManualClock } from "./testing/manual-clock.ts";
import { Wakeup } from "./wait.ts";

test("an alarm rings at the earliest time that was set, and again at a time that is set after it", async () => {
  const clock = new ManualClock();
  const wakeup = new Wakeup();
  const rung: number[] = [];
  const again = (): void => {
    rung.push(clock.nowMs());
    wakeup.call(again);
  };
  wakeup.call(again);
  const alarm = new Alarm(wakeup, clock);
  const { signal } = new AbortController();
  const startMs = clock.nowMs();
  for (const atMs of [1_000, 2_000, 1_000, Number.POSITIVE_INFINITY]) alarm.set(startMs + atMs, signal);
  await clock.advance(5_000);
  alarm.set(startMs + 6_000, signal);
  await clock.advance(5_000);
  expect(rung).toEqual([startMs + 1_000, startMs + 6_000]);
});
