import type { OpItem } from "@kpng/model/gen/localv1/api_pb.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { aborted } from "@kpng/process/wait.ts";
import { expect, test } from "vitest";
import { type FakeWatcher, inTurn, silence, startFakeWatcher } from "../testing/fake-watcher.ts";
import { deleteService, putService, reset, sync } from "../testing/ops.ts";
import { runBackendTask } from "../testing/run-backend-task.ts";
import { createGate, type Gate, Mailbox } from "../testing/steps.ts";
import type { ViewUpdate } from "../types/sync-update.ts";
import type { BackendCallbacks } from "./backend-task.ts";

function start(watcher: FakeWatcher, callbacks: BackendCallbacks, isOnce = false) {
  const { metrics, ...running } = runBackendTask(watcher.address, callbacks, { isOnce });
  const metric = async (name: string) =>
    (await metrics.metrics()).split("\n").find((line) => line.startsWith(`${name} `));
  return { ...running, metric };
}

/** A watcher that sends a batch for each value that the test puts into `batches`. */
async function playSteps(): Promise<{ readonly watcher: FakeWatcher; readonly batches: Mailbox<readonly OpItem[]> }> {
  const batches = new Mailbox<readonly OpItem[]>();
  const watcher = await startFakeWatcher((request) => Promise.race([batches.next(), silence(request)]));
  return { watcher, batches };
}

/** Calls that last until the test opens their gates. */
function gatedCalls() {
  const calls = new Mailbox<{ readonly update: ViewUpdate; readonly gate: Gate }>();
  const onChanges = async (update: ViewUpdate): Promise<void> => {
    const gate = createGate();
    calls.put({ update, gate });
    await gate.opened;
  };
  return { calls, onChanges };
}

test("a failed call is logged, shown in health and repeated, even if the view is again the same as before", async () => {
  const { watcher, batches } = await playSteps();
  await using _ = watcher;
  const { calls, onChanges } = gatedCalls();
  const backend = start(watcher, { onChanges });
  batches.put([reset, putService("a/1"), sync(1n)]);
  (await calls.next()).gate.open();
  batches.put([putService("a/2"), sync(2n)]);
  const failing = await calls.next();
  expect(backend.health.isReady).toBe(true);
  batches.put([deleteService("a/2"), sync(3n)]);
  await watcher.untilReceived(4);
  failing.gate.fail(new Error("disk full"));
  const repeated = await calls.next();
  expect(repeated.update).toMatchObject({ touched: new Set(["a/2"]), revision: 3n, isFirst: false });
  expect(backend.health.parts.get("test")).toEqual({ isHealthy: false, isReady: true, reason: "disk full" });
  expect(backend.lines.find((line) => line.msg === "sync failed")).toMatchObject({
    backend: "test",
    reason: "disk full",
    stack: expect.stringMatching(/^Error: disk full\n +at /),
  });
  repeated.gate.open();
  await backend.end();
  expect(backend.health.isHealthy).toBe(true);
});

test("a call that ends because it was told to stop has not failed", async () => {
  await using watcher = await startFakeWatcher(inTurn([reset, sync()]));
  const called = createGate();
  const onState = async (_view: NodeView, signal: AbortSignal): Promise<void> => {
    called.open();
    await aborted(signal);
    signal.throwIfAborted();
  };
  const backend = start(watcher, { onState });
  await called.opened;
  await backend.end();
  expect(backend.lines.filter((line) => line.level === "error")).toEqual([]);
  expect(backend.health.isHealthy).toBe(true);
});

test("with isOnce, a failed call is repeated, and the task ends after the first success and closes its stream", async () => {
  await using watcher = await startFakeWatcher(inTurn([reset, sync()]));
  let calls = 0;
  const onState = (): void => {
    // Thrown at once, not as a rejection.
    if (++calls < 3) throw new Error("not yet");
  };
  await start(watcher, { onState }, true).ended;
  expect(calls).toBe(3);
  while (!watcher.received[0]?.signal.aborted) await new Promise(setImmediate);
});

test("a synced backend stays healthy and ready without a watcher, and health has the reason", async () => {
  await using watcher = await startFakeWatcher((request) =>
    request.stream === 0 && request.index === 0 ? [reset, sync(1n)] : request.stream === 0 ? "end" : silence(request),
  );
  const synced = createGate();
  const backend = start(watcher, { onState: () => synced.open() });
  await synced.opened;
  await watcher.untilReceived(3);
  expect(backend.health.isHealthy && backend.health.isReady).toBe(true);
  expect(backend.health.parts.get("stream")?.reason).toContain("keeping the last view");
  expect(await backend.metric("kpng_backend_stream_connected")).toMatch(/ 0$/);
  expect(await backend.metric("kpng_backend_reconnects_total")).toMatch(/ 1$/);
  await backend.end();
});

test("before the first sync marker a backend is not ready, and health has the reason of the lost stream", async () => {
  await using watcher = await startFakeWatcher((request) => (request.stream < 2 ? "end" : silence(request)));
  const backend = start(watcher, { onState: () => undefined });
  await watcher.untilReceived(3);
  expect(backend.health.isReady).toBe(false);
  expect(backend.health.parts.get("stream")?.reason).toContain("STREAM_LOST");
  await backend.end();
});
