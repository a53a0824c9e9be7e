import { EventEmitter, on } from "node:events";
import { createClient } from "@connectrpc/connect";
import type { Position } from "@kpng/model/forward.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { aborted, waitMs } from "@kpng/process/wait.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeDecodeOptions } from "../decode/decoded.ts";
import { kubeSource } from "./kube-source.ts";
import { type Answer, FakeServer, nodeList, rawNode, watchEvent } from "./testing/fake-server.ts";

// A store that is filled by a source from a scripted API server. Its watches deliver nothing, unless a test says so.

const patience = { timeout: 30_000 };

/** State of the API server. `uid` is undefined if the watcher may not read it. */
let cluster: {
  version: string;
  nodes: readonly string[];
  isFrozen: boolean;
  refusesLists: boolean;
  uid: string | undefined;
};
let server: FakeServer;
let store: Store;
let health: Health;
let metrics: Registry;
let end: () => Promise<void>;

beforeEach(() => {
  cluster = { version: "10", nodes: ["n1"], isFrozen: false, refusesLists: false, uid: "a" };
  server = new FakeServer(answer);
  store = new Store();
  health = new Health();
  metrics = new Registry();
});

afterEach(() => end());

function answer({ pathname, searchParams }: URL): Answer {
  const { version, nodes, isFrozen, refusesLists, uid } = cluster;
  if (pathname.endsWith("/servicecidrs")) return { status: 404, lines: [{ code: 404 }] };
  if (searchParams.has("watch") || isFrozen) return { lines: [], after: "hang" };
  if (pathname.endsWith("/namespaces/kube-system")) {
    return uid === undefined ? { status: 403, lines: [{ code: 403 }] } : { lines: [{ metadata: { uid } }] };
  }
  if (refusesLists && Number(searchParams.get("limit")) > 1) return { status: 429, lines: [{ code: 429 }] };
  return nodeList(version, pathname.endsWith("/nodes") ? nodes : []);
}

/** `staleAfterMs`: the source reads from the server three times in it. */
async function start(staleAfterMs = 600_000): Promise<void> {
  const stop = new AbortController();
  const source = kubeSource({
    connection: server,
    sink: store,
    decode: makeDecodeOptions(),
    metrics,
    health,
    log: createLog("error", () => undefined),
    timing: { backoff: { minMs: 1, maxMs: 1 }, confirmMs: 1_000 },
    staleAfterMs,
  });
  const running = source.run(stop.signal);
  end = async () => {
    stop.abort();
    await running;
    expect(server.isClosed).toBe(true);
  };
  await expect.poll(() => store.snapshot.isSynced, patience).toBe(true);
}

/** Resolves with the names of the nodes, and the position, when the source is next reported as fresh. */
function whenFresh(): Promise<{ readonly names: readonly string[]; readonly position: Position }> {
  return new Promise((resolve) => {
    store.currency.observe(({ kind }) => {
      if (kind === "fresh") resolve({ names: [...store.snapshot.nodes.keys()], position: store.snapshot.position });
    });
  });
}

/** The reasons for which the source becomes stale from now on. */
function staleReasons(): readonly string[] {
  const reasons: string[] = [];
  store.currency.observe((event) => {
    if (event.kind === "stale") reasons.push(event.reason);
  });
  return reasons;
}

function listCount(): number {
  return server.requests.filter(({ searchParams }) => Number(searchParams.get("limit")) > 1).length;
}

test("the first states already name the cluster", async () => {
  const sources: string[] = [];
  store.observe(({ next }) => sources.push(next.position.source));
  await start();
  expect(new Set(sources)).toEqual(new Set(["kube:a"]));
});

test("a watcher that may not read the identity of the cluster serves it without one", async () => {
  cluster.uid = undefined;
  await start();
  expect(store.snapshot.position.source).toBe("kube");
});

test("no call of a client causes a request to the API server", async () => {
  await start();
  const watcher = await serveStore(store);
  const client = createClient(PositionService, dial({ api: watcher.address }));
  const before = server.requests.length;
  for (let count = 0; count < 20; count++) expect((await client.check({})).isStale).toBe(false);
  expect(server.requests.length).toBe(before);
  await watcher.stop();
});

test("a server without ServiceCIDRs gives a ready and healthy source, and is not asked for them again", async () => {
  await start();
  await expect.poll(() => server.requests.filter(({ searchParams }) => searchParams.has("watch")).length).toBe(3);
  expect([...health.parts].map(([part, { isReady, isHealthy }]) => [part, isReady && isHealthy]).sort()).toEqual([
    ["source/kube/nodes", true],
    ["source/kube/services", true],
    ["source/kube/slices", true],
  ]);
  expect(server.requests.filter(({ pathname }) => pathname.endsWith("/servicecidrs"))).toHaveLength(1);
});

test("metrics count lost watches, and report whether the source is connected", async () => {
  let [isReachable, watches] = [true, 0];
  server = new FakeServer((url) => {
    if (!url.searchParams.has("watch") || !url.pathname.endsWith("/nodes")) return answer(url);
    if (!isReachable) return { status: 500, lines: [{ code: 500, message: "etcd is unavailable" }] };
    watches += 1;
    isReachable = watches > 1;
    return isReachable ? answer(url) : { lines: [watchEvent("ADDED", rawNode("a", "11"))], after: "break" };
  });
  await start();
  const value = async (series: string): Promise<number> => {
    const line = (await metrics.metrics()).split("\n").find((each) => each.startsWith(`kpng_source_${series} `));
    return Number(line?.split(" ").at(-1));
  };
  const isConnected = () =>
    Promise.all(["services", "nodes"].map((kind) => value(`connected{source="kube",kind="${kind}"}`)));
  await expect.poll(isConnected, patience).toEqual([1, 0]);
  expect(await value('watches_total{kind="nodes",result="lost"}')).toBeGreaterThan(0);
  isReachable = true;
  await expect.poll(isConnected, patience).toEqual([1, 1]);
});

test("a healthy server is not listed again because events overtake its answers", async () => {
  const changes = new EventEmitter();
  let probeCount = 0;
  async function* overtaken() {
    const list = { metadata: { resourceVersion: cluster.version }, items: [] };
    probeCount += 1;
    cluster.version = String(Number(cluster.version) + 1);
    changes.emit("change", watchEvent("BOOKMARK", { metadata: { resourceVersion: cluster.version } }));
    // The event is read first.
    await waitMs(20, new AbortController().signal);
    yield list;
  }
  async function* events(signal: AbortSignal) {
    for await (const [event] of on(changes, "change", { signal })) yield event;
  }
  server = new FakeServer((url) => {
    if (!url.pathname.endsWith("/services")) return answer(url);
    if (url.searchParams.has("watch")) return { lines: events };
    return url.searchParams.get("limit") === "1" ? { lines: overtaken } : answer(url);
  });
  await start(300);
  const reasons = staleReasons();
  const [lists, probes] = [listCount(), probeCount];
  await expect.poll(() => probeCount, patience).toBeGreaterThan(probes + 5);
  expect({ reasons, lists: listCount() - lists }).toEqual({ reasons: [], lists: 0 });
});

test("a frozen server makes the watcher stale until it answers; then everything is listed again", async () => {
  await start(300);
  expect(store.currency.staleReason).toBeUndefined();
  cluster.isFrozen = true;
  await expect.poll(() => store.currency.staleReason, patience).toContain("services");
  const before = listCount();
  // Restored meanwhile, and beyond the version at which the watches stopped.
  Object.assign(cluster, { version: "20", nodes: ["restored"], isFrozen: false });
  await expect.poll(() => store.currency.staleReason, patience).toBeUndefined();
  await expect.poll(() => [...store.snapshot.nodes.keys()], patience).toEqual(["restored"]);
  expect(listCount()).toBe(before + 3);
});

/**
 * Returns a function that decides whether requests for nodes are refused. The first refusal ends the watch of nodes.
 */
function refusableNodes(): (refuses: boolean) => void {
  let isRefused = false;
  const refusal = new AbortController();
  async function* untilRefused(signal: AbortSignal) {
    await aborted(AbortSignal.any([signal, refusal.signal]));
    yield* [];
  }
  server = new FakeServer((url) => {
    if (!url.pathname.endsWith("/nodes")) return answer(url);
    if (isRefused) return { status: 403, lines: [{ code: 403 }] };
    return url.searchParams.has("watch") && !refusal.signal.aborted ? { lines: untilRefused } : answer(url);
  });
  return (refuses) => {
    isRefused = refuses;
    refusal.abort();
  };
}

test("a kind whose requests fail makes the watcher stale, and the other kinds are not listed again", async () => {
  const setRefused = refusableNodes();
  await start(300);
  const countOf = (limit: (value: number) => boolean) =>
    server.requests.filter(({ pathname, searchParams }) => {
      return pathname.endsWith("/services") && limit(Number(searchParams.get("limit")));
    }).length;
  const lists = () => countOf((limit) => limit > 1);
  setRefused(true);
  await expect.poll(() => store.currency.staleReason, patience).toContain("nodes");
  const [listsBefore, probesBefore] = [lists(), countOf((limit) => limit === 1)];
  await expect.poll(() => countOf((limit) => limit === 1), patience).toBeGreaterThan(probesBefore + 5);
  expect(lists()).toBe(listsBefore);
  setRefused(false);
  await expect.poll(() => store.currency.staleReason, patience).toBeUndefined();
});

test("a server whose versions went back makes the watcher stale at once, even if requests fail", async () => {
  const setRefused = refusableNodes();
  await start(3_000);
  const reasons = staleReasons();
  const nodeRequests = () => server.requests.filter(({ pathname }) => pathname.endsWith("/nodes")).length;
  const before = nodeRequests();
  setRefused(true);
  await expect.poll(nodeRequests, patience).toBeGreaterThan(before);
  cluster.version = "5";
  await expect.poll(() => reasons[0], patience).toMatch(/listed again: not allowed to list nodes/);
});

test.each([
  { change: "after a silence", isFrozen: true, next: { version: "5" }, source: "kube:a" },
  { change: "whose versions went back", isFrozen: false, next: { version: "5" }, source: "kube:a" },
  { change: "of another cluster", isFrozen: false, next: { version: "20", uid: "b" }, source: "kube:b" },
])(
  "a server $change that lacks nearly all objects leaves the watcher stale until their deletion is confirmed",
  async ({ isFrozen, next, source }) => {
    cluster.nodes = Array.from({ length: 20 }, (_, index) => `old${index}`);
    await start(300);
    if (isFrozen) {
      cluster.isFrozen = true;
      await expect.poll(() => store.currency.staleReason, patience).toBeDefined();
    }
    const fresh = whenFresh();
    Object.assign(cluster, { ...next, nodes: ["other"], isFrozen: false });
    await expect.poll(() => [...store.snapshot.nodes.keys()], patience).toContain("other");
    expect(store.snapshot.nodes.size).toBe(21);
    expect(store.currency.staleReason).toBeDefined();
    const { names, position } = await fresh;
    expect(names).toEqual(["other"]);
    expect(position).toMatchObject({ source, nodes: BigInt(next.version) });
  },
);
