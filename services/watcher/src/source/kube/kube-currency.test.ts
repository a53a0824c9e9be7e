import type { Position } from "@kpng/model/forward/position.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Store } from "../../store/store.ts";
import { makeDecodeOptions } from "../decode/decode-options.ts";
import { kubeSource } from "./kube-source.ts";
import { type Answer, FakeServer, nodeList } from "./testing/fake-server.ts";

// A store that is filled by a source from a scripted API server, whose watches deliver nothing.

const patience = { timeout: 30_000 };

/** State of the API server. */
let cluster: { version: string; nodes: readonly string[]; isFrozen: boolean };
let server: FakeServer;
let store: Store;
let end: () => Promise<void>;

beforeEach(() => {
  cluster = { version: "10", nodes: ["n1"], isFrozen: false };
  server = new FakeServer(answer);
  store = new Store();
});

afterEach(() => end());

function answer({ pathname, searchParams }: URL): Answer {
  const { version, nodes, isFrozen } = cluster;
  if (pathname.endsWith("/servicecidrs")) return { status: 404, lines: [{ code: 404 }] };
  if (searchParams.has("watch") || isFrozen) return { lines: [], after: "hang" };
  return nodeList(version, pathname.endsWith("/nodes") ? nodes : []);
}

/** `staleAfterMs`: the source reads from the server three times in it. */
async function start(staleAfterMs = 600_000): Promise<void> {
  const stop = new AbortController();
  const source = kubeSource({
    connection: server,
    sink: store,
    decode: makeDecodeOptions(),
    metrics: new Registry(),
    health: new Health(),
    log: createLog("error", () => undefined),
    timing: { usesWatchList: false, backoff: { minMs: 1, maxMs: 1 } },
    staleAfterMs,
  });
  const running = source.run(stop.signal);
  end = async () => {
    stop.abort();
    await running;
  };
  await expect.poll(() => store.snapshot.isSynced, patience).toBe(true);
}

function at(version: bigint, epoch = 0n): Position {
  return { source: "kube", epoch, services: version, slices: version, nodes: version };
}

/** Number of reads of one object, and of complete lists. */
function requestCounts(): { readonly reads: number; readonly lists: number } {
  const limits = server.requests.map(({ searchParams }) => searchParams.get("limit"));
  return { reads: limits.filter((limit) => limit === "1").length, lists: limits.filter((one) => one === "500").length };
}

test("a watcher that is behind a node lists again, and then has the node's position", async () => {
  await start();
  Object.assign(cluster, { version: "20", nodes: ["n1", "n2"] });
  const { lists } = requestCounts();
  expect(await store.currency.covers(at(20n))).toBe(true);
  expect(requestCounts().lists).toBe(lists + 3);
  expect([...store.snapshot.nodes.keys()]).toEqual(["n1", "n2"]);
});

test("a position that the server does not have is not covered, and costs a read of one object for each kind", async () => {
  await start();
  const before = requestCounts();
  expect(await store.currency.covers(at(20n))).toBe(false);
  expect(requestCounts()).toEqual({ reads: before.reads + 3, lists: before.lists });
  const reads = server.requests.filter(({ searchParams }) => searchParams.get("limit") === "1");
  // With a resource version, the API server may answer from its cache.
  expect(reads.every(({ searchParams }) => !searchParams.has("resourceVersion"))).toBe(true);
});

test("after a restore that a node saw, the watcher lists everything again, and has the node's epoch", async () => {
  await start();
  const { lists } = requestCounts();
  expect(await store.currency.covers(at(10n, 1n))).toBe(true);
  expect(requestCounts().lists).toBe(lists + 3);
  expect(store.position.epoch).toBe(1n);
});

test("a server whose versions went back makes the watcher list again, and begin an epoch", async () => {
  await start(300);
  Object.assign(cluster, { version: "5", nodes: ["old"] });
  await expect.poll(() => [...store.snapshot.nodes.keys()], patience).toEqual(["old"]);
  await expect.poll(() => store.position.epoch, patience).toBeGreaterThan(0n);
  expect(store.position.nodes).toBe(5n);
});

test("a frozen server makes the watcher stale until it answers; then all watches start again", async () => {
  await start(300);
  expect(store.currency.staleReason).toBeUndefined();
  cluster.isFrozen = true;
  await expect.poll(() => store.currency.staleReason, patience).toContain("services");
  expect(await store.currency.covers(at(20n))).toBe(false);
  const watches = (): number => server.requests.filter(({ searchParams }) => searchParams.has("watch")).length;
  const before = watches();
  cluster.isFrozen = false;
  await expect.poll(() => store.currency.staleReason, patience).toBeUndefined();
  await expect.poll(watches, patience).toBeGreaterThanOrEqual(before + 3);
});
