import { ForwardGate } from "@kpng/model/forward/forward-gate.ts";
import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { expect, test } from "vitest";
import { putEndpoint, putService, reset, syncAt } from "../testing/ops.ts";
import { playWatcher, silence } from "../testing/played-watcher.ts";
import { createReadableLog } from "../testing/steps.ts";
import { type ConnectionState, followView } from "./follow-view.ts";

/**
 * Follows a watcher that sends `streams`, one after another, until the node has a view of the last one. Time passes
 * only between streams. `delaysMs` are those after a state was refused.
 */
async function follow(streams: readonly (readonly OpItem[])[], acceptAfterMs: number, random = 0) {
  let nowMs = 0;
  const delaysMs: number[] = [];
  const states: ConnectionState[] = [];
  const gate = new ForwardGate({ acceptAfterMs, nowMs: () => nowMs });
  const stop = new AbortController();
  await using watcher = await playWatcher((asked) => {
    if (asked.index > 0) return asked.stream >= streams.length - 1 ? silence(asked) : "end";
    return streams[Math.min(asked.stream, streams.length - 1)] ?? [];
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
  const { delaysMs, states, held } = await follow([view(20n), view(10n)], 20_000);
  // The doubled delay would be 16 s, and the state would be accepted after 30 s.
  expect(delaysMs).toEqual([2_000, 4_000, 8_000, 6_000]);
  expect(states.slice(-2).map(({ kind }) => kind)).toEqual(["older", "synced"]);
  expect(held?.services).toBe(10n);
});

test("nodes that wait for the same moment to accept an older state do not retry at the same moment", async () => {
  const { delaysMs } = await follow([view(20n), view(10n)], 2_000, 0.5);
  expect(delaysMs).toEqual([1_000, 1_100]);
});

test("a batch that cannot be applied does not make a later state count as older", async () => {
  const wrongDigest = [...view(20n), putService("a/other"), syncAt(40n, 1n)];
  const withoutReset = [putService("a/web"), syncAt(50n)];
  const withoutService = [reset, putEndpoint("a/absent/e1"), syncAt(60n)];
  const { states, held } = await follow([wrongDigest, withoutReset, withoutService, view(30n)], 60_000);
  expect(states.map(({ kind }) => kind)).toEqual(["synced", "diverged", "lost", "lost", "lost", "synced"]);
  expect(held?.services).toBe(30n);
});
