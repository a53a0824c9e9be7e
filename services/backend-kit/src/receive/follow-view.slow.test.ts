import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ForwardGate } from "@kpng/model/forward.ts";
import { Feature, NodeSchema, type OpItem, ServiceSchema, Set as WireSet } from "@kpng/model/gen/localv1/api_pb.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { retryLaterError } from "@kpng/process/connection/reconnect.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { describe, expect, test } from "vitest";
import { dialWatchers } from "../discovery/dial-watchers.ts";
import { ViewState } from "../state/view-state.ts";
import { type Answer, type FakeWatcher, inTurn, silence, startFakeWatcher } from "../testing/fake-watcher.ts";
import { put, putEndpoint, putNode, putService, reset, sync, syncAt } from "../testing/ops.ts";
import { createInstantWait, createReadableLog } from "../testing/steps.ts";
import type { ViewUpdate } from "../types/sync-update.ts";
import { type ConnectionState, followView, watchView } from "./follow-view.ts";

const world = [putService("a/web"), putEndpoint("a/web/x")];

async function follow(
  watcher: FakeWatcher,
  steps: (next: () => Promise<ViewUpdate>) => Promise<void>,
  more: Partial<Parameters<typeof followView>[0]> = {},
): Promise<{ readonly states: ConnectionState[]; readonly delaysMs: readonly number[] }> {
  const stop = new AbortController();
  const states: ConnectionState[] = [];
  const { wait, delaysMs } = createInstantWait();
  const { log } = createReadableLog();
  const updates = followView(
    {
      transport: dialWatchers({ api: watcher.address, log }),
      nodeName: "n1",
      log,
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

test.each([
  { name: "a Node of another name", ops: [reset, ...world, putNode("n2"), sync()] },
  { name: "a stream that does not start with Reset", ops: [...world, sync()] },
])("$name ends the stream, not the process", async ({ ops }) => {
  await using watcher = await startFakeWatcher(({ stream }) => (stream === 0 ? ops : [reset, ...world, sync()]));
  const { states } = await follow(watcher, async (next) => {
    expect((await next()).view.services.size).toBe(1);
  });
  expect(states[0]).toMatchObject({ kind: "lost", reason: expect.stringContaining("[BAD_STREAM]") });
});

test("delays grow, also if a stream delivers a batch before it ends", async () => {
  const answer: Answer = ({ stream, index }) => {
    if (stream < 4 || index > 0) return "end";
    return [reset, sync()];
  };
  const delays = async (random: () => number): Promise<readonly number[]> => {
    const twice = async (next: () => Promise<ViewUpdate>): Promise<void> => {
      await next();
      await next();
    };
    await using watcher = await startFakeWatcher(answer);
    return (await follow(watcher, twice, { random })).delaysMs;
  };
  expect(await delays(() => 0)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000]);
  // The whole delay is random, because thousands of nodes lose their watcher at the same moment.
  expect(await delays(() => 0.999)).toEqual([1, 2, 4, 8, 16]);
});

test.each(["none.sock", "none.sock,unix://other.sock"])(
  "while nothing listens at %s, it is tried at least every three seconds",
  async (names) => {
    const stop = new AbortController();
    const delaysMs: number[] = [];
    const wait = async (ms: number): Promise<void> => {
      if (delaysMs.push(ms) === 8) stop.abort();
    };
    const { log } = createReadableLog();
    const transport = dialWatchers({ api: `unix://${join(temporaryFolder(), names)}`, log });
    for await (const _ of followView({ transport, wait, nodeName: "n1", log }, stop.signal)) expect.fail("no watcher");
    expect(Math.max(...delaysMs)).toBeLessThanOrEqual(3_000);
  },
);

test("a busy watcher is retried when it asks for it, after 150 s at most", async () => {
  await using watcher = await startFakeWatcher(({ stream, index, trailers }) => {
    if (stream === 1) {
      trailers.set("grpc-retry-pushback-ms", "40000");
      return "end";
    }
    if (stream === 0) throw retryLaterError("busy", 900_000);
    return index === 0 ? [reset, ...world, sync()] : "end";
  });
  const { states, delaysMs } = await follow(watcher, async (next) => {
    await next();
  });
  expect(states[0]).toMatchObject({ kind: "refused", reason: expect.stringContaining("busy") });
  expect(delaysMs.slice(0, 2)).toEqual([150_000, 40_000]);
});

test("watchers that send the client away after each first batch are not retried without a pause", async () => {
  await using watcher = await startFakeWatcher(({ stream, index }) => {
    if (index > 0 && stream < 3) throw retryLaterError("move", 0);
    return index === 0 ? [reset, ...world, sync()] : "end";
  });
  const all = async (next: () => Promise<ViewUpdate>): Promise<void> => {
    for (let count = 0; count < 4; count++) await next();
  };
  const { states, delaysMs } = await follow(watcher, all, { random: () => 0.5 });
  expect(states.slice(0, 4).map(({ kind }) => kind)).toEqual(["synced", "moved", "synced", "moved"]);
  expect(delaysMs.slice(0, 3)).toEqual([500, 1_000, 2_000]);
});

describe("a view without the digest that the watcher sent", () => {
  const digestOf = (...ops: readonly OpItem[]): bigint => {
    const state = new ViewState("n1");
    for (const op of [reset, ...ops]) state.stage(op);
    return state.next().held.digest;
  };

  test("is not yielded, and the whole view is requested", async () => {
    const change = putService("a/web", "10.0.0.9");
    await using watcher = await startFakeWatcher(({ stream, index }) => {
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
    expect(
      watcher.received.filter(({ index }) => index === 0).map(({ request }) => request.HeldDigests.length),
    ).toEqual([0, 0]);
  });

  test("is used if it is a whole view, because the watcher's digest must be wrong", async () => {
    const change = putService("a/web", "10.0.0.9");
    await using watcher = await startFakeWatcher(({ index }) => {
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

/**
 * Follows a watcher that sends `streams`, one after another, until the node has a view of the last one. Time passes
 * only between streams. `delaysMs` are those after a state was refused.
 */
async function followStreams(streams: readonly (readonly OpItem[])[], acceptAfterMs: number, random = 0) {
  let nowMs = 0;
  const delaysMs: number[] = [];
  const states: ConnectionState[] = [];
  const gate = new ForwardGate({ acceptAfterMs, nowMs: () => nowMs });
  const stop = new AbortController();
  await using watcher = await startFakeWatcher((request) => {
    if (request.index > 0) return request.stream >= streams.length - 1 ? silence(request) : "end";
    return streams[Math.min(request.stream, streams.length - 1)] ?? [];
  });
  const wait = async (ms: number): Promise<void> => {
    if (states.at(-1)?.kind === "behind") delaysMs.push(ms);
    nowMs += ms;
  };
  const onConnection = (state: ConnectionState): void => void states.push(state);
  const { log } = createReadableLog();
  const options = { transport: dial({ api: watcher.address }), nodeName: "n1", log, gate, wait, onConnection };
  const last = streams.at(-1)?.at(-1)?.Op;
  for await (const { revision } of followView({ ...options, random: () => random }, stop.signal)) {
    if (last?.case === "Sync" && last.value.Revision === revision) stop.abort();
  }
  return { delaysMs, states, held: gate.held };
}

const view = (version: bigint): readonly OpItem[] => [reset, putService("a/web"), syncAt(version)];

test("an older state is accepted soon after the time for it, although delays between streams double", async () => {
  const { delaysMs, states, held } = await followStreams([view(20n), view(10n)], 20_000);
  // The doubled delay would be 16 s, and the state would be accepted after 30 s.
  expect(delaysMs).toEqual([2_000, 4_000, 8_000, 6_000]);
  expect(states.slice(-2).map(({ kind }) => kind)).toEqual(["older", "synced"]);
  expect(held?.services).toBe(10n);
});

test("nodes that wait for the same moment to accept an older state do not retry at the same moment", async () => {
  const { delaysMs } = await followStreams([view(20n), view(10n)], 2_000, 0.5);
  expect(delaysMs).toEqual([1_000, 1_100]);
});

test("a batch that cannot be applied does not make a later state count as older", async () => {
  const wrongDigest = [...view(20n), putService("a/other"), syncAt(40n, 1n)];
  const withoutReset = [putService("a/web"), syncAt(50n)];
  const withoutService = [reset, putEndpoint("a/absent/e1"), syncAt(60n)];
  const { states, held } = await followStreams([wrongDigest, withoutReset, withoutService, view(30n)], 60_000);
  expect(states.map(({ kind }) => kind)).toEqual(["synced", "diverged", "lost", "lost", "lost", "synced"]);
  expect(held?.services).toBe(30n);
});

async function firstView(ops: readonly OpItem[], maxMessageBytes?: number): Promise<NodeView | undefined> {
  await using watcher = await startFakeWatcher(inTurn(ops));
  const transport = dial({ api: watcher.address, maxMessageBytes });
  const options = { transport, nodeName: "n1" };
  for await (const { view } of watchView(new ViewState("n1"), options, AbortSignal.timeout(10_000))) return view;
  return undefined;
}

function serviceWithAffinity(seconds: number): Uint8Array {
  const affinity = { case: "ClientIP", value: { TimeoutSeconds: seconds } } as const;
  return toBinary(ServiceSchema, create(ServiceSchema, { Namespace: "a", Name: "web", SessionAffinity: affinity }));
}

test("an affinity timeout of a second is accepted", async () => {
  const first = await firstView([reset, put(WireSet.ServicesSet, "a/web", serviceWithAffinity(1)), sync()]);
  expect(first?.services.get("a/web")?.service.clientIPAffinitySeconds).toBe(1);
});

test("a request is sent when the caller asks for a batch, and names the node and our features", async () => {
  await using watcher = await startFakeWatcher(({ index }) =>
    index === 0 ? [reset, sync(7n, "run")] : [sync(8n, "run")],
  );
  const options = { transport: dial({ api: watcher.address }), nodeName: "n1", serviceProxyName: "p" };
  const batches = watchView(new ViewState("n1"), options, AbortSignal.timeout(10_000));
  expect(watcher.received.length).toBe(0);
  for (let count = 1; count <= 3; count++) {
    const { value } = await batches.next();
    expect(value).toMatchObject({ isFirst: count === 1, revision: count === 1 ? 7n : 8n, instance: "run" });
    // The answered request is the last one: if requests were sent early, the server would have read another one before
    // its answer arrived here.
    expect(watcher.received.length).toBe(count);
  }
  await batches.return();
  expect(watcher.received[0]?.request).toMatchObject({
    NodeName: "n1",
    ServiceProxyName: "p",
    Features: [Feature.Extended, Feature.NodeItem, Feature.Batches],
  });
});

test("an unknown Set is skipped, and a Reset within a batch discards the operations before it", async () => {
  const first = await firstView([
    putService("a/gone"),
    reset,
    put(99 as WireSet, "x", new Uint8Array([255])),
    putService("a/web"),
    sync(),
  ]);
  expect([...(first?.services.keys() ?? [])]).toEqual(["a/web"]);
});

test.each([
  { name: "undecodable bytes", ops: [reset, put(WireSet.ServicesSet, "a/web", new Uint8Array([255, 1, 2]))] },
  {
    name: "an affinity timeout of 0",
    ops: [reset, put(WireSet.ServicesSet, "a/web", serviceWithAffinity(0))],
  },
  {
    name: "a node at another node's path",
    ops: [reset, put(WireSet.NodesSet, "n2", toBinary(NodeSchema, create(NodeSchema, { Name: "n1" })))],
  },
  { name: "an invalid path", ops: [reset, put(WireSet.EndpointsSet, "a/b/c/d", new Uint8Array())] },
])("BAD_STREAM ends the stream after $name", async ({ ops }) => {
  await expect(firstView([...ops, sync()])).rejects.toThrow("[BAD_STREAM]");
});

test("a message beyond the limit ends the stream with an error that names the option", async () => {
  const large = put(WireSet.EndpointsSet, "a/b/c", new Uint8Array(100_000));
  await expect(firstView([reset, large, sync()], 50_000)).rejects.toThrow("raise --max-msg-size");
});

test("the watcher's side of the call ends when the caller returns or aborts", async () => {
  for (const how of ["return", "abort"] as const) {
    const stop = new AbortController();
    await using watcher = await startFakeWatcher(inTurn([reset, sync()]));
    const options = { transport: dial({ api: watcher.address }), nodeName: "n1" };
    const batches = watchView(new ViewState("n1"), options, stop.signal);
    await batches.next();
    const next = how === "abort" ? batches.next() : undefined;
    if (how === "return") await batches.return();
    else stop.abort();
    expect((await next)?.done ?? true).toBe(true);
    const signal = watcher.received[0]?.signal;
    await new Promise<void>((resolve) => {
      if (signal?.aborted) resolve();
      else signal?.addEventListener("abort", () => resolve());
    });
  }
});
