import { dialWatchers } from "@kpng/backend-kit/discovery/dial-watchers.ts";
import { followView } from "@kpng/backend-kit/receive/follow-view.ts";
import { createLog } from "@kpng/process/log.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { expect, test } from "vitest";

const nodeCount = 300;

/** Time limit for three hundred connections on a busy machine. */
const patience = { timeout: 60_000 };

/** Starts a replica; all replicas have the same state. */
async function serveReplica(listen = "tcp://127.0.0.1:0"): Promise<TestServer> {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [node("n1")] });
  return serveStore(store, { listen: [listen], maxAgeMs: 2_000, ageIntervalMs: 5 });
}

async function subscribers(server: TestServer): Promise<number> {
  return (await server.metrics.getSingleMetric("kpng_subscribers")?.get())?.values[0]?.value ?? 0;
}

async function agedCount(server: TestServer): Promise<number> {
  const values = (await server.metrics.getSingleMetric("kpng_connections_ended_total")?.get())?.values ?? [];
  return values.find(({ labels }) => labels.reason === "age")?.value ?? 0;
}

test("a restarted replica has its share of the nodes after one connection age, and no node loses a change", {
  timeout: 180_000,
}, async () => {
  const [a, b, gone] = [await serveReplica(), await serveReplica(), await serveReplica()];
  await gone.stop();
  const servers = [a, b];
  const stop = new AbortController();
  const log = createLog("error", () => undefined);
  const api = [a, b, gone].map(({ address }) => address).join(",");
  let syncedCount = 0;
  const faults: string[] = [];
  const follow = async (): Promise<void> => {
    const transport = dialWatchers({ api, log });
    let isFirst = true;
    const onConnection = ({ kind }: { readonly kind: string }): void => {
      if (kind === "lost" || kind === "refused") faults.push(kind);
    };
    for await (const { touched } of followView({ transport, nodeName: "n1", log, onConnection }, stop.signal)) {
      if (isFirst) syncedCount++;
      else if (touched.size > 0) faults.push("changes");
      isFirst = false;
    }
  };
  const nodes = Promise.all(Array.from({ length: nodeCount }, follow));
  try {
    await expect.poll(() => syncedCount, patience).toBe(nodeCount);
    const back = await serveReplica(`tcp://${gone.address}`);
    servers.push(back);
    const agedBefore = (await agedCount(a)) + (await agedCount(b));
    // Each connection has moved once.
    await expect
      .poll(async () => (await agedCount(a)) + (await agedCount(b)) - agedBefore, patience)
      .toBeGreaterThan(nodeCount);
    // A third, within five standard deviations. Some nodes are moving at any moment, and counted twice or not at all.
    const shares = async (): Promise<boolean> => {
      const counts = await Promise.all(servers.map(subscribers));
      const sum = counts.reduce((all, count) => all + count, 0);
      return sum > nodeCount / 2 && counts.every((count) => Math.abs(count / sum - 1 / 3) < 41 / nodeCount);
    };
    await expect.poll(shares, patience).toBe(true);
    expect(faults).toEqual([]);
  } finally {
    stop.abort();
    await nodes;
    await Promise.all(servers.map((server) => server.stop()));
  }
});
