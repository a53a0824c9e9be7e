import { expect, test } from "vitest";
import { Wakeup } from "./wait.ts";

test("a callback is called once per wake, and again only if it waits again", () => {
  const wakeup = new Wakeup();
  let calls = 0;
  const again = (): void => {
    calls += 1;
    wakeup.call(again);
  };
  wakeup.call(again);
  wakeup.call(again);
  wakeup.wake();
  expect([calls, wakeup.waitingCount]).toEqual([1, 1]);
  wakeup.wake();
  expect(calls).toBe(2);
});

test("a callback that another callback of the same wake cancels is not called", () => {
  const wakeup = new Wakeup();
  const called: string[] = [];
  const late = (): void => void called.push("late");
  wakeup.call(() => {
    called.push("first");
    wakeup.cancel(late);
  });
  wakeup.call(late);
  wakeup.wake();
  wakeup.wake();
  expect(called).toEqual(["first"]);
});
