import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { NodeView } from "@kpng/model/node-view.ts";
import { service, view } from "@kpng/model/testing/views.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { Registry } from "prom-client";
import { beforeEach, expect, test, vi } from "vitest";
import { type Answer, inTurn, silence, startFakeWatcher } from "../testing/fake-watcher.ts";
import { putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { runBackendTask } from "../testing/run-backend-task.ts";
import { createGate, createReadableLog, Mailbox } from "../testing/steps.ts";
import { syncUpdate } from "../testing/sync-update.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import { loadView } from "./view-file.ts";
import { ViewKeeper } from "./view-keeper.ts";

const second = 1_000;
let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

/** `stepMs` is added to the clock at each reading, `wallStepMs` to the time of day. */
function start(inFolder = folder, stepMs = 0, wallStepMs = 0) {
  const clock = new ManualClock();
  const { log, lines } = createReadableLog();
  const metrics = new Registry();
  const { wait } = clock;
  let asked = 0;
  const nowMs = (): number => clock.nowMs() + stepMs * asked++;
  let askedWall = 0;
  const now = (): number => clock.nowMs() + wallStepMs * askedWall++;
  const options = { nodeName: "n1", serviceProxyName: "", log, metrics, wait, nowMs, now };
  const keeper = new ViewKeeper({ ...options, folder: inFolder });
  const stop = new AbortController();
  const running = keeper.run(stop.signal);
  return {
    clock,
    lines,
    metrics,
    /** Resolves when a write has ended: its file appears a moment before. */
    paused: () => vi.waitFor(() => expect(clock.isAwaited).toBe(true), { timeout: 5_000 }),
    synced: (newest: NodeView, isFromDisk = false) => keeper.succeeded(syncUpdate({ view: newest, isFromDisk })),
    end: async () => {
      stop.abort();
      await running;
    },
  };
}

const load = () => loadView({ folder, nodeName: "n1", serviceProxyName: "" });

async function saved(): Promise<string> {
  const file = await load().catch(() => undefined);
  if (file === undefined) return "none";
  const keys = [...file.update.view.services.keys()];
  return `${Date.parse(file.header.savedAt) / second}: ${keys.join(" ")}`;
}

/** Writing takes real time, during which the clock of the test stands still. */
const becomes = (expected: string) => vi.waitFor(async () => expect(await saved()).toBe(expected), { timeout: 5_000 });

test("views are written at most every five seconds, and the newest view at the end", async () => {
  const { clock, synced, paused, end } = start();
  await clock.advance(second);
  synced(view([service("a/1")]));
  await becomes("1: a/1");
  await paused();
  synced(view([service("a/2")]));
  await clock.advance(4 * second);
  expect(await saved()).toBe("1: a/1");
  synced(view([service("a/3")]));
  await clock.advance(second);
  await becomes("6: a/3");
  synced(view([service("a/4")]));
  await end();
  expect(await saved()).toBe("6: a/4");
});

test("a pause is fifty times as long as the write before it", async () => {
  const { clock, synced, paused, end } = start(folder, second / 2);
  const keys = async () => (await saved()).split(": ")[1];
  synced(view([service("a/1")]));
  await vi.waitFor(async () => expect(await keys()).toBe("a/1"), { timeout: 5_000 });
  await paused();
  synced(view([service("a/2")]));
  await clock.advance(30 * second);
  expect(await keys()).toBe("a/1");
  await clock.advance(60 * second);
  await vi.waitFor(async () => expect(await keys()).toBe("a/2"), { timeout: 5_000 });
  await end();
});

test("a pause does not depend on steps of the time of day", async () => {
  const { clock, synced, paused, end } = start(folder, 0, 24 * 3_600 * second);
  synced(view([service("a/1")]));
  await becomes("0: a/1");
  await paused();
  synced(view([service("a/2")]));
  await clock.advance(5 * second);
  await becomes(`${24 * 3_600 + 5}: a/2`);
  await end();
});

test("a view that was loaded from disk is not written again", async () => {
  const { synced, end } = start();
  synced(view([service("a/1")]), true);
  await end();
  expect(await saved()).toBe("none");
});

test("a folder that cannot be created is logged once, counted, and tried again", async () => {
  const blocked = join(folder, "blocked");
  writeFileSync(blocked, "");
  const { clock, synced, lines, metrics, end } = start(join(blocked, "state"));
  synced(view([service("a/1")]));
  const failures = async () => /result="failed"} (\d+)/.exec(await metrics.metrics())?.[1];
  await vi.waitFor(async () => expect(await failures()).toBe("1"));
  await clock.advance(5 * second);
  await vi.waitFor(async () => expect(await failures()).toBe("2"));
  expect(lines.map((line) => line.msg)).toEqual(["view not saved: trying again"]);
  rmSync(blocked);
  await end();
  expect(lines.map((line) => line.msg)).toEqual(["view not saved: trying again", "view saved again"]);
});

function startBackend(address: string) {
  const clock = new ManualClock();
  const syncs = new Mailbox<SyncUpdate>();
  const onChanges = (update: SyncUpdate) => syncs.put(update);
  return { clock, syncs, ...runBackendTask(address, { onChanges }, { stateFolder: folder, wait: clock.wait }) };
}

const world = [putService("a/1"), putEndpoint("a/1/x"), putService("a/2")];
const sends = (...ops: typeof world): Answer => inTurn([reset, ...ops, sync(1n)]);

async function keepWorld(): Promise<void> {
  await using watcher = await startFakeWatcher(sends(...world));
  const backend = startBackend(watcher.address);
  await backend.syncs.next();
  await backend.end();
}

test("the saved view is used if no watcher answers in time", async () => {
  await keepWorld();
  const gone = await startFakeWatcher(silence);
  await gone[Symbol.asyncDispose]();
  const { clock, syncs, metrics, lines, end } = startBackend(gone.address);
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

test("the first view of a watcher touches what the saved view has in addition", async () => {
  await keepWorld();
  const gate = createGate();
  const answer: Answer = async (request) => {
    if (request.index > 0) return silence(request);
    await gate.opened;
    return [reset, putService("a/1"), putService("a/3"), sync(7n)];
  };
  await using watcher = await startFakeWatcher(answer);
  const { clock, syncs, metrics, end } = startBackend(watcher.address);
  await clock.advance(3_000);
  expect(await syncs.next()).toMatchObject({ isFromDisk: true });
  gate.open();
  const update = await syncs.next();
  expect(update).toMatchObject({ mode: "full", revision: 7n });
  expect(update.isFromDisk).toBeUndefined();
  expect([...update.touched].sort()).toEqual(["a/1", "a/2", "a/3"]);
  expect(await metrics.metrics()).toContain("kpng_backend_view_from_disk 0\n");
  await end();
  const file = await load();
  expect([...(file?.update.view.services.keys() ?? [])]).toEqual(["a/1", "a/3"]);
});

test("the view of a watcher that answers is used at once, and the saved view is not", async () => {
  await keepWorld();
  await using watcher = await startFakeWatcher(sends(putService("a/9")));
  const { clock, syncs, end } = startBackend(watcher.address);
  const first = await syncs.next();
  expect([...first.view.services.keys()]).toEqual(["a/9"]);
  await clock.advance(10_000);
  expect(syncs.size).toBe(0);
  await end();
});
