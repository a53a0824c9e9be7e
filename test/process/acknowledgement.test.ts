import { join } from "node:path";
import { type BackendCallbacks, backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import type { Subscriber } from "@kpng/watcher/stream/session/subscribers.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

let store: Store;
let server: TestServer;
let stop: AbortController;
let folder: string;
const running: Promise<void>[] = [];

beforeEach(async () => {
  folder = temporaryFolder();
  stop = new AbortController();
  store = new Store();
  store.replace({
    services: [service()],
    slices: [slice([endpoint("10.1.0.1", { podName: "web-1" })])],
    nodes: [node("n1")],
  });
  server = await serveStore(store);
});

afterEach(async () => {
  stop.abort();
  await Promise.all(running.splice(0));
  await server.stop();
});

function run(callbacks: BackendCallbacks): void {
  const log = createLog("error", () => undefined);
  const task = backendTask({
    ...callbacks,
    name: "test",
    transport: dial({ api: server.address }),
    nodeName: "n1",
    log,
    health: new Health(),
    metrics: new Registry(),
    errorDelayMs: 10,
  });
  running.push(task.run(stop.signal));
}

/** Returns the only subscriber. */
function subscriber(): Subscriber | undefined {
  return [...server.subscribers.open][0];
}

function setAddress(address: string): void {
  store.apply([{ kind: "put-slice", slice: slice([endpoint(address, { podName: "web-1" })]) }]);
}

async function metric(name: string): Promise<number | undefined> {
  const found = await server.metrics.getSingleMetric(name)?.get();
  return found?.values.find((value) => !("metricName" in value) || value.metricName === name)?.value;
}

describe("a backend", () => {
  test("counts as behind while it works, and reports a failure", async () => {
    let release: (() => void) | undefined;
    let isBroken = false;
    run({
      onState: async () => {
        if (isBroken) throw new Error("line 7 was refused");
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      },
    });
    await expect.poll(() => subscriber()?.sentRevision).toBe(store.snapshot.revision);
    expect(subscriber()).toMatchObject({ appliedRevision: 0, hasAcknowledged: false });
    // The callback may not have received the batch yet.
    await expect.poll(() => release).toBeDefined();
    release?.();
    await expect.poll(() => subscriber()?.appliedRevision).toBe(store.snapshot.revision);
    const before = store.snapshot.revision;
    isBroken = true;
    setAddress("10.1.0.3");
    await expect
      .poll(() => subscriber()?.failure)
      .toEqual({
        revision: before + 1,
        error: "line 7 was refused",
      });
    expect(subscriber()?.appliedRevision).toBe(before);
    expect(subscriber()?.receivedRevision).toBe(before + 1);
    expect(subscriber()?.unappliedSinceMs).toBeGreaterThan(0);
    expect(await metric("kpng_subscribers_failing")).toBe(1);
    expect(await metric("kpng_oldest_unapplied_seconds")).toBeGreaterThan(0);
    isBroken = false;
    const healed = setInterval(() => release?.(), 5);
    await expect.poll(() => subscriber()?.appliedRevision).toBe(before + 1);
    clearInterval(healed);
    expect(subscriber()?.failure).toBeUndefined();
    expect(await metric("kpng_subscribers_failing")).toBe(0);
    expect(await metric("kpng_apply_failures_total")).toBe(1);
  });

  test("repeats its acknowledgement on the next stream, and acknowledges revisions of a new watcher after their first batch", async () => {
    const address = `unix://${join(folder, "api.sock")}`;
    await server.stop();
    server = await serveStore(store, { listen: [address] });
    run({ onState: () => undefined });
    await expect.poll(() => subscriber()?.appliedRevision).toBe(store.snapshot.revision);
    // The same store continues: there is nothing to apply, but the backend still acknowledges.
    await server.stop();
    server = await serveStore(store, { listen: [address] });
    await expect.poll(() => subscriber()?.hasAcknowledged).toBe(true);
    expect(subscriber()?.appliedRevision).toBe(store.snapshot.revision);
    await server.stop();
    const { services, nodes } = store.snapshot;
    store = new Store();
    store.replace({ services: [...services.values()], slices: [], nodes: [...nodes.values()] });
    server = await serveStore(store, { listen: [address] });
    await expect.poll(() => subscriber()?.hasAcknowledged).toBe(true);
    await expect.poll(() => subscriber()?.appliedRevision).toBe(store.snapshot.revision);
  });
});
