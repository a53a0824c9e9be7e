import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { retryLaterError } from "@kpng/process/connection/retry-pushback.ts";
import { describe, expect, test } from "vitest";
import { dialWatchers } from "../discovery/dial-watchers.ts";
import { putEndpoint, putNode, putService, reset, sync } from "../testing/ops.ts";
import { type Answer, type PlayedWatcher, playWatcher, silence } from "../testing/played-watcher.ts";
import { createInstantWait, createReadableLog } from "../testing/steps.ts";
import type { ViewUpdate } from "../types/sync-update.ts";
import { type ConnectionState, followView } from "./follow-view.ts";
import { HeldItems } from "./held-items.ts";

const world = [putService("a/web"), putEndpoint("a/web/x")];

async function follow(
  watcher: PlayedWatcher,
  steps: (next: () => Promise<ViewUpdate>) => Promise<void>,
  more: Partial<Parameters<typeof followView>[0]> = {},
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
      ...more,
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

test("a watcher that restarts with the same view changes nothing, and the view is kept in between", async () => {
  await using watcher = await playWatcher((asked) => (asked.index === 0 ? [reset, ...world, sync()] : silence(asked)));
  const { states } = await follow(watcher, async (next) => {
    const first = await next();
    const second = next();
    await watcher.untilAsked(2);
    watcher.breakConnections();
    expect(await second).toMatchObject({ touched: new Set(), isFirst: false });
    expect((await second).view.services).toBe(first.view.services);
  });
  expect(states.map((state) => state.kind)).toEqual(["synced", "lost", "synced"]);
});

test("a change during an outage of the watcher arrives as the difference", async () => {
  const answer: Answer = (asked) => {
    if (asked.index > 0) return "end";
    return asked.stream === 0 ? [reset, ...world, sync()] : [reset, putService("a/web"), putService("a/new"), sync()];
  };
  await using watcher = await playWatcher(answer);
  await follow(watcher, async (next) => {
    await next();
    expect(await next()).toMatchObject({
      touched: new Set(["a/web", "a/new"]),
      counts: { services: 1, endpoints: 1 },
    });
  });
});

test("nothing is yielded before the first sync marker", async () => {
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
  { name: "a Node of another name", ops: [reset, ...world, putNode("n2"), sync()] },
  { name: "an endpoint without its Service", ops: [reset, putEndpoint("a/web/x"), sync()] },
  { name: "a stream that does not start with Reset", ops: [...world, sync()] },
])("$name ends the stream, not the process", async ({ ops }) => {
  await using watcher = await playWatcher(({ stream }) => (stream === 0 ? ops : [reset, ...world, sync()]));
  const { states } = await follow(watcher, async (next) => {
    expect((await next()).view.services.size).toBe(1);
  });
  expect(states[0]).toMatchObject({ kind: "lost", reason: expect.stringContaining("[BAD_STREAM]") });
});

test("delays grow until a sync marker arrives, and then start from the minimum again", async () => {
  const answer: Answer = ({ stream, index }) => {
    if (stream < 4 || index > 0) return "end";
    return [reset, sync()];
  };
  const delays = async (random: () => number): Promise<readonly number[]> => {
    const twice = async (next: () => Promise<ViewUpdate>): Promise<void> => {
      await next();
      await next();
    };
    await using watcher = await playWatcher(answer);
    return (await follow(watcher, twice, { random })).delaysMs;
  };
  expect(await delays(() => 0)).toEqual([1_000, 2_000, 4_000, 8_000, 1_000]);
  // The whole delay is random, because thousands of nodes lose their watcher at the same moment.
  expect(await delays(() => 0.999)).toEqual([1, 2, 4, 8, 1]);
});

test("a unix socket without a listener is retried every second until it has one", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-follow-"));
  const path = join(folder, "api.sock");
  const stop = new AbortController();
  const delaysMs: number[] = [];
  await using watcher = await playWatcher(({ index }) => (index === 0 ? [reset, ...world, sync()] : "end"));
  const { hostname: host, port } = new URL(`http://${watcher.address}`);
  // The socket forwards to the watcher.
  const door = createServer((client) => {
    const inside = connect(Number(port), host);
    client.pipe(inside).pipe(client);
    for (const one of [client, inside]) one.on("error", () => undefined);
  });
  const wait = async (ms: number): Promise<void> => {
    delaysMs.push(ms);
    if (delaysMs.length === 8) await new Promise<void>((resolve) => door.listen(path, resolve));
  };
  const options = { transport: dialWatchers({ api: `unix://${path}`, log: createReadableLog().log }), wait };
  for await (const update of followView({ ...options, nodeName: "n1", log: createReadableLog().log }, stop.signal)) {
    expect(update.view.services.size).toBe(1);
    break;
  }
  stop.abort();
  door.close();
  rmSync(folder, { recursive: true });
  expect(delaysMs).toEqual(Array(8).fill(1_000));
});

test.each([
  { name: "a busy watcher is retried when it asks for it", pushbackMs: 17_000, kind: "refused", delayMs: 17_000 },
  { name: "a busy watcher is retried after 150 s at most", pushbackMs: 900_000, kind: "refused", delayMs: 150_000 },
])("$name", async ({ pushbackMs, kind, delayMs }) => {
  await using watcher = await playWatcher(({ stream, index }) => {
    if (stream === 0) throw retryLaterError("busy", pushbackMs);
    return index === 0 ? [reset, ...world, sync()] : "end";
  });
  const { states, delaysMs } = await follow(watcher, async (next) => {
    await next();
  });
  expect(states[0]).toMatchObject({ kind, reason: expect.stringContaining("busy") });
  expect(delaysMs[0]).toBe(delayMs);
});

test("watchers that send the client away after each first batch are not retried without a pause", async () => {
  await using watcher = await playWatcher(({ stream, index }) => {
    if (index > 0 && stream < 3) throw retryLaterError("move", 0);
    return index === 0 ? [reset, ...world, sync()] : "end";
  });
  const all = async (next: () => Promise<ViewUpdate>): Promise<void> => {
    for (let count = 0; count < 4; count++) await next();
  };
  const { states, delaysMs } = await follow(watcher, all, { random: () => 0.5 });
  expect(states.slice(0, 4).map(({ kind }) => kind)).toEqual(["synced", "moved", "synced", "moved"]);
  expect(delaysMs.slice(0, 3)).toEqual([500, 500, 500]);
});

describe("a view without the digest that the watcher sent", () => {
  const digestOf = (...ops: readonly OpItem[]): bigint => {
    const held = new HeldItems();
    for (const op of ops) held.stage(op);
    held.commit();
    return held.digest;
  };

  test("is not yielded, and the whole view is requested", async () => {
    const change = putService("a/web", "10.0.0.9");
    await using watcher = await playWatcher(({ stream, index }) => {
      if (index === 0) return [reset, ...world, sync(1n, "i", digestOf(...world))];
      // A Delete was lost on the way.
      return stream === 0 && index === 1 ? [change, sync(2n, "i", digestOf(change))] : "end";
    });
    const { states } = await follow(watcher, async (next) => {
      await next();
      const second = await next();
      expect(second.view.services.get("a/web")?.service.clusterIPs?.v4).toEqual(["10.0.0.1"]);
    });
    expect(states.map(({ kind }) => kind)).toEqual(["synced", "diverged", "lost", "synced"]);
    expect(watcher.asked.filter(({ index }) => index === 0).map(({ request }) => request.HeldDigests.length)).toEqual([
      0, 0,
    ]);
  });

  test("is used if it is a whole view, because the watcher's digest must be wrong", async () => {
    const change = putService("a/web", "10.0.0.9");
    await using watcher = await playWatcher(({ index }) => {
      if (index === 0) return [reset, ...world, sync(1n, "i", 1n)];
      return index === 1 ? [change, sync(2n, "i", 2n)] : "end";
    });
    const { states } = await follow(watcher, async (next) => {
      expect((await next()).view.services.size).toBe(1);
      expect((await next()).view.services.get("a/web")?.service.clusterIPs?.v4).toEqual(["10.0.0.9"]);
    });
    expect(states.map(({ kind }) => kind)).toEqual(["diverged", "synced", "synced"]);
  });
});
