import { followView } from "@kpng/backend-kit/receive/follow-view.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { createLog } from "@kpng/process/log.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { node, service } from "@kpng/watcher/testing/build.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { expect, test } from "vitest";

const nodeCount = 100;

/** Number of streams that are always admitted. */
const places = 16;

/** Time limit for a hundred connections on a busy machine. */
const patience = { timeout: 60_000 };

/** Starts a watcher that admits sixteen waiting streams and has no state yet. */
async function serve(listen: string): Promise<{ readonly server: TestServer; fill(): void }> {
  const store = new Store();
  const server = await serveStore(store, { listen: [listen], maxWaiting: 16, drainMs: 0 });
  const services = Array.from({ length: 200 }, (_, index) => service({ name: `s${index}` }));
  return { server, fill: () => store.replace({ services, slices: [], nodes: [node("n1")] }) };
}

async function refused(server: TestServer, view: string): Promise<number> {
  const values = (await server.metrics.getSingleMetric("kpng_admission_refused_total")?.get())?.values ?? [];
  return values.find(({ labels }) => labels.view === view)?.value ?? 0;
}

test("nodes that connect all at once to a watcher with few places return at the time that it tells them", {
  timeout: 180_000,
}, async () => {
  let { server, fill } = await serve("tcp://127.0.0.1:0");
  const { address } = server;
  const stop = new AbortController();
  const log = createLog("error", () => undefined);
  const synced = new Set<number>();
  const changed: number[] = [];
  const follow = async (index: number): Promise<void> => {
    let isFirst = true;
    const options = { transport: dial({ api: address }), nodeName: "n1", log, errorDelayMs: 200 };
    for await (const { touched } of followView(options, stop.signal)) {
      synced.add(index);
      if (!isFirst && touched.size > 0) changed.push(index);
      isFirst = false;
    }
  };
  const nodes = Promise.all(Array.from({ length: nodeCount }, (_, index) => follow(index)));
  try {
    await expect.poll(() => refused(server, "whole"), patience).toBeGreaterThanOrEqual(nodeCount - places);
    expect(synced.size).toBe(0);
    fill();
    await expect.poll(() => synced.size, patience).toBe(nodeCount);
    await server.stop();
    synced.clear();
    ({ server, fill } = await serve(`tcp://${address}`));
    await expect.poll(() => refused(server, "resumed"), patience).toBeGreaterThanOrEqual(nodeCount - places);
    fill();
    await expect.poll(() => synced.size, patience).toBe(nodeCount);
    // A node that was told to retry loses no change.
    expect(changed).toEqual([]);
  } finally {
    stop.abort();
    await nodes;
    await server.stop();
  }
});
