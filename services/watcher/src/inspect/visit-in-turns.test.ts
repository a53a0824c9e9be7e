import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { scheduler } from "../stream/session/scheduler.ts";
import { visitInTurns } from "./visit-in-turns.ts";

/** Blocks the thread for a millisecond. */
function work(): void {
  for (const untilMs = performance.now() + 1; performance.now() < untilMs; );
}

test("updates of nodes go before the rest of a long response", async () => {
  const visited: number[] = [];
  const items = Array.from({ length: 100 }, (_, index) => index);
  const visit = (item: number): boolean => {
    work();
    return visited.push(item) > 0;
  };
  const all = visitInTurns(items, visit, new AbortController().signal);
  const seen = await scheduler.run("update", () => visited.length);
  expect(seen).toBeLessThan(items.length);
  await all;
  expect(visited).toEqual(items);
});

test("the visit ends when the visitor returns false, and an abort is an error", async () => {
  const visited: number[] = [];
  await visitInTurns([1, 2, 3], (item) => visited.push(item) < 2, new AbortController().signal);
  expect(visited).toEqual([1, 2]);
  const deadline = new ConnectError("the deadline is over", Code.DeadlineExceeded);
  const all = (signal: AbortSignal): Promise<boolean> =>
    visitInTurns([1, 2, 3], (item) => visited.push(item) > 0, signal);
  await expect(all(AbortSignal.abort(deadline))).rejects.toBe(deadline);
  await expect(all(AbortSignal.abort())).rejects.toMatchObject({ code: Code.Unavailable });
  expect(visited).toEqual([1, 2]);
});
