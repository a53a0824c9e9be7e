import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { backendTask } from "../backend/backend-task.ts";
import { putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { type Answer, playWatcher, silence } from "../testing/played-watcher.ts";
import { createReadableLog, Mailbox } from "../testing/steps.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import { readViewFile } from "./view-file.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-state-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function start(address: string) {
  const clock = new ManualClock();
  const syncs = new Mailbox<SyncUpdate>();
  const stop = new AbortController();
  const metrics = new Registry();
  const { log, lines } = createReadableLog();
  const task = backendTask({
    name: "test",
    transport: dial({ api: address }),
    nodeName: "n1",
    log,
    health: new Health(),
    metrics,
    onChanges: (update) => syncs.put(update),
    state: { folder, maxAgeMs: 86_400_000 },
    wait: clock.wait,
  });
  const running = task.run(stop.signal);
  return {
    clock,
    syncs,
    lines,
    metrics,
    end: async () => {
      stop.abort();
      await running;
    },
  };
}

const world = [putService("a/1"), putEndpoint("a/1/x"), putService("a/2")];
const sends =
  (...ops: typeof world): Answer =>
  (asked) =>
    asked.index === 0 ? [reset, ...ops, sync(1n)] : silence(asked);

async function keepWorld(): Promise<void> {
  await using watcher = await playWatcher(sends(...world));
  const backend = start(watcher.address);
  await backend.syncs.next();
  await backend.end();
}

test("the saved view is used if no watcher answers in time", async () => {
  await keepWorld();
  const gone = await playWatcher(silence);
  await gone[Symbol.asyncDispose]();
  const { clock, syncs, metrics, lines, end } = start(gone.address);
  await clock.advance(2_900);
  expect(syncs.size).toBe(0);
  await clock.advance(200);
  const saved = await syncs.next();
  expect([...saved.view.services.keys()]).toEqual(["a/1", "a/2"]);
  expect(saved).toMatchObject({ isFromDisk: true, mode: "full" });
  expect(await metrics.metrics()).toContain("kpng_backend_view_from_disk 1\n");
  expect(lines.map((line) => line.msg)).toContain("no watcher answers: starting with the saved view");
  await end();
});

test("the first view of a watcher is synced in full, even if it equals the saved view", async () => {
  await keepWorld();
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await using watcher = await playWatcher(async (asked) => {
    if (asked.index === 0) await released;
    return sends(...world)(asked);
  });
  const { clock, syncs, end } = start(watcher.address);
  await clock.advance(3_000);
  expect(await syncs.next()).toMatchObject({ isFromDisk: true });
  release();
  expect(await syncs.next()).toMatchObject({ mode: "full", fullReason: "first view of a watcher", changes: [] });
  await end();
});

test("the first view of a watcher deletes what the saved view has in addition", async () => {
  await keepWorld();
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const answer: Answer = async (asked) => {
    if (asked.index > 0) return silence(asked);
    await released;
    return [reset, putService("a/1"), putService("a/3"), sync(7n)];
  };
  await using watcher = await playWatcher(answer);
  const { clock, syncs, metrics, end } = start(watcher.address);
  await clock.advance(3_000);
  expect(await syncs.next()).toMatchObject({ isFromDisk: true });
  release();
  const update = await syncs.next();
  expect(update).toMatchObject({ mode: "full", revision: 7n });
  expect(update.isFromDisk).toBeUndefined();
  expect(update.changes.map(({ kind }) => kind)).toEqual(["put-service", "delete-endpoint", "delete-service"]);
  expect(await metrics.metrics()).toContain("kpng_backend_view_from_disk 0\n");
  await end();
  const file = await readViewFile(join(folder, "view"));
  expect(file?.changes.map((change) => ("key" in change ? change.key : change.kind))).toEqual(["a/1", "a/3"]);
});

test("the view of a watcher that answers is used at once, and the saved view is not", async () => {
  await keepWorld();
  await using watcher = await playWatcher(sends(putService("a/9")));
  const { clock, syncs, end } = start(watcher.address);
  const first = await syncs.next();
  expect([...first.view.services.keys()]).toEqual(["a/9"]);
  await clock.advance(10_000);
  expect(syncs.size).toBe(0);
  await end();
});
