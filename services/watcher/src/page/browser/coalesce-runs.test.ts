import { expect, test } from "vitest";
import { coalesceRuns } from "./coalesce-runs.ts";

test("calls while the work runs lead to one more run after it, and none is lost", async () => {
  const runs: PromiseWithResolvers<void>[] = [];
  const start = coalesceRuns(() => {
    const run = Promise.withResolvers<void>();
    runs.push(run);
    return run.promise;
  });
  start();
  start();
  start();
  expect(runs.length).toBe(1);
  runs[0]?.resolve();
  await expect.poll(() => runs.length).toBe(2);
  start();
  runs[1]?.resolve();
  await expect.poll(() => runs.length).toBe(3);
  runs[2]?.resolve();
  await runs[2]?.promise;
  start();
  await expect.poll(() => runs.length).toBe(4);
});
