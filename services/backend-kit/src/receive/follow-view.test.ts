import { dial } from "@kpng/process/dial.ts";
import { expect, test } from "vitest";
import type { ViewUpdate } from "../state/view-state.ts";
import { putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { type Answer, type PlayedWatcher, playWatcher, silence } from "../testing/played-watcher.ts";
import { createInstantWait, createReadableLog } from "../testing/steps.ts";
import { type ConnectionState, followView } from "./follow-view.ts";

const world = [putService("a/web"), putEndpoint("a/web/x")];

async function follow(
  watcher: PlayedWatcher,
  steps: (next: () => Promise<ViewUpdate>) => Promise<void>,
): Promise<{ readonly states: ConnectionState[]; readonly delaysMs: readonly number[] }> {
  const stop = new AbortController();
  const states: ConnectionState[] = [];
  const { wait, delaysMs } = createInstantWait();
  const updates = followView(
    {
      transport: dial({ api: watcher.address }),
      nodeName: "n1",
      log: createReadableLog().log,
      onConnection: (state) => states.push(state),
      wait,
    },
    stop.signal,
  );
  await steps(async () => {
    const { value, done } = await updates.next();
    if (done === true) throw new Error("the view ended");
    return value;
  });
  stop.abort();
  expect((await updates.next()).done).toBe(true);
  return { states, delaysMs };
}

test("a watcher that dies and comes back with the same view changes nothing, and the view is held meanwhile", async () => {
  await using watcher = await playWatcher((asked) => (asked.index === 0 ? [reset, ...world, sync()] : silence(asked)));
  const { states } = await follow(watcher, async (next) => {
    const first = await next();
    const second = next();
    while (watcher.asked.length < 2) await new Promise(setImmediate);
    watcher.breakConnections();
    expect(await second).toMatchObject({ changes: [], isFirst: false });
    expect((await second).view.services).toBe(first.view.services);
  });
  expect(states.map((state) => state.kind)).toEqual(["synced", "lost", "synced"]);
});

test("what changed while no watcher was there comes as the difference", async () => {
  const answer: Answer = (asked) => {
    if (asked.index > 0) return "end";
    return asked.stream === 0 ? [reset, ...world, sync()] : [reset, putService("a/web"), putService("a/new"), sync()];
  };
  await using watcher = await playWatcher(answer);
  await follow(watcher, async (next) => {
    await next();
    expect((await next()).changes.map((change) => change.kind)).toEqual(["put-service", "delete-endpoint"]);
  });
});

test("nothing comes out before the first sync marker", async () => {
  const answer: Answer = ({ stream }) => {
    if (stream === 0) throw new Error("broken after the first operations");
    return [reset, ...world, sync()];
  };
  await using watcher = await playWatcher(answer);
  await follow(watcher, async (next) => {
    expect(await next()).toMatchObject({ isFirst: true });
  });
});

test.each([
  { name: "an endpoint without its Service", ops: [reset, putEndpoint("a/web/x"), sync()] },
  { name: "a stream that does not begin with Reset", ops: [...world, sync()] },
])("$name ends the stream, not the process", async ({ ops }) => {
  await using watcher = await playWatcher(({ stream }) => (stream === 0 ? ops : [reset, ...world, sync()]));
  const { states } = await follow(watcher, async (next) => {
    expect((await next()).view.services.size).toBe(1);
  });
  expect(states[0]).toMatchObject({ kind: "lost", reason: expect.stringContaining("[BAD_STREAM]") });
});

test("delays grow while no sync marker comes, whatever else does, and begin anew after one", async () => {
  const answer: Answer = ({ stream, index }) => {
    if (stream < 4 || index > 0) return "end";
    return [reset, sync()];
  };
  await using watcher = await playWatcher(answer);
  const { delaysMs } = await follow(watcher, async (next) => {
    await next();
    await next();
  });
  const steps = [1_000, 2_000, 4_000, 8_000, 1_000];
  expect(delaysMs.length).toBe(steps.length);
  for (const [index, step] of steps.entries()) {
    expect(delaysMs[index]).toBeGreaterThanOrEqual(step / 2);
    expect(delaysMs[index]).toBeLessThanOrEqual(step);
  }
});
