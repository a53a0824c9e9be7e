import { dialWatchers, findFreshWatcher } from "@kpng/backend-kit/discovery/dial-watchers.ts";
import { followView } from "@kpng/backend-kit/receive/follow-view.ts";
import { ForwardGate } from "@kpng/model/forward.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { createLog } from "@kpng/process/log.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterEach, expect, test } from "vitest";

// Watchers and a node in this process, over real connections. The states come from one API server, at a
// resourceVersion; the name of the only Service shows which.

/** Time between two searches of a node for a better watcher, in milliseconds. */
const searchMs = 200;

const patience = { timeout: 30_000 };
const limits = { timeout: 120_000 };
const cleanups: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Replica {
  readonly store: Store;
  readonly server: TestServer;
}

function show(store: Store, version: bigint): void {
  const versions = { services: version, slices: version, nodes: version };
  const objects = { services: [service({ name: `at-${version}` })], slices: [], nodes: [node("n1")] };
  store.replace(objects, { source: "kube", receivedAtMs: 0, versions });
  store.currency.confirm(versions);
}

async function startReplica(version: bigint, listen = "tcp://127.0.0.1:0"): Promise<Replica> {
  const store = new Store();
  show(store, version);
  const server = await serveStore(store, { listen: [listen], ageIntervalMs: 5, drainMs: 0 });
  cleanups.push(() => server.stop());
  return { store, server };
}

/** Replicas of which only the first runs, so that a node begins there. `startOthers` starts the others. */
async function startFirst(first: bigint, ...others: readonly bigint[]) {
  const stopped = await Promise.all(others.map((version) => startReplica(version)));
  await Promise.all(stopped.map(({ server }) => server.stop()));
  const running = await startReplica(first);
  const startOthers = (): Promise<Replica[]> =>
    Promise.all(stopped.map(({ server }, index) => startReplica(others[index] ?? 0n, `tcp://${server.address}`)));
  return { first: running, replicas: [running, ...stopped], startOthers };
}

/** A node that follows the replicas. `seen`: name of the Service after each change. */
function startNode(replicas: readonly Replica[], acceptAfterMs = 60_000) {
  const stop = new AbortController();
  const lines: string[] = [];
  const log = createLog("info", (line) => lines.push(line));
  const api = replicas.map(({ server }) => server.address).join(",");
  const seen: string[] = [];
  const connections: string[] = [];
  const run = async (): Promise<void> => {
    const transport = dialWatchers({ api, log, searchMs });
    const gate = new ForwardGate({ acceptAfterMs });
    const onConnection = ({ kind }: { readonly kind: string }) => void connections.push(kind);
    const options = { transport, nodeName: "n1", log, gate, onConnection, errorDelayMs: 20, random: () => 0.02 };
    for await (const { view } of followView(options, stop.signal)) {
      const name = [...view.services.keys()].join();
      if (seen.at(-1) !== name) seen.push(name);
    }
  };
  const running = run();
  cleanups.push(async () => {
    stop.abort();
    await running;
  });
  return { seen, connections, lines };
}

/** Returns when a search like that of a node with a stale watcher has looked for others four times. */
async function severalSearches(stale: Replica | undefined): Promise<void> {
  const stop = new AbortController();
  let count = 0;
  const others = (): [] => {
    if (++count === 4) stop.abort();
    return [];
  };
  const current = dial({ api: stale?.server.address ?? "" });
  await findFreshWatcher({ current, others, intervalMs: searchMs }, stop.signal);
  expect(count).toBe(4);
}

async function subscribers({ server }: Replica): Promise<number> {
  return (await server.metrics.getSingleMetric("kpng_subscribers")?.get())?.values[0]?.value ?? 0;
}

test("a watcher that becomes stale sends its nodes away, and they stay with one that is current", limits, async () => {
  const replicas = [await startReplica(10n), await startReplica(10n)];
  const { seen } = startNode(replicas);
  await expect.poll(() => seen, patience).toEqual(["ns/at-10"]);
  const counts = await Promise.all(replicas.map(subscribers));
  const [left, right] = counts[0] === 1 ? replicas : replicas.toReversed();
  left?.store.currency.markStale("the API server does not answer");
  await expect.poll(async () => right && (await subscribers(right)), patience).toBe(1);
  if (right !== undefined) show(right.store, 20n);
  await expect.poll(() => seen, patience).toEqual(["ns/at-10", "ns/at-20"]);
});

test("a node accepts a stale watcher if there is no other, and leaves it as soon as there is", limits, async () => {
  const [a, b] = [await startReplica(10n), await startReplica(10n)];
  for (const { store } of [a, b]) store.currency.markStale("the API server does not answer");
  const { seen } = startNode([a, b]);
  await expect.poll(() => seen, patience).toEqual(["ns/at-10"]);
  const [current, other] = (await subscribers(a)) === 1 ? [a, b] : [b, a];
  other.store.currency.markFresh();
  await expect.poll(() => subscribers(other), patience).toBe(1);
  await expect.poll(() => subscribers(current), patience).toBe(0);
});

test("a node looks for a better watcher only while it has a stream from a stale one", limits, async () => {
  const { first, replicas, startOthers } = await startFirst(20n, 10n);
  const { seen, connections, lines } = startNode(replicas);
  await expect.poll(() => seen, patience).toEqual(["ns/at-20"]);
  const [behind] = await startOthers();
  behind?.store.currency.markStale("the API server does not answer");
  await first.server.stop();
  const refusals = (): number => connections.filter((kind) => kind === "behind").length;
  await expect.poll(refusals, patience).toBeGreaterThan(4);
  await startReplica(30n, `tcp://${first.server.address}`);
  await expect.poll(() => seen, patience).toEqual(["ns/at-20", "ns/at-30"]);
  // A search that outlived its stream finds the new watcher within its interval.
  await severalSearches(behind);
  expect(lines.filter((line) => line.includes("leaving a stale watcher")).length).toBeLessThan(2);
});
