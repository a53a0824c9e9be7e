import { createServer, type ServerHttp2Session } from "node:http2";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { Sets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { aborted, waitMs } from "@kpng/process/wait.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { startRelay } from "@kpng/watcher/testing/start-relay.ts";
import { expect, onTestFinished, test } from "vitest";
import { listen } from "../../../../test/cluster/ports.ts";
import { node, service } from "../testing/build.ts";
import type { ApiSourceOptions } from "./api-source.ts";

const patient = { timeout: 30_000 };

const kube = (version: bigint) => {
  return { source: "kube", receivedAtMs: 0, versions: { services: version, slices: version, nodes: version } };
};

/** State of an API server at a resourceVersion. */
function kubeStore(name: string, version: bigint): Store {
  const store = new Store();
  store.replace({ services: [service({ name })], slices: [], nodes: [node("n1")] }, kube(version));
  return store;
}

function start(api: string, options: Partial<ApiSourceOptions> = {}) {
  const timing = { backoff: { minMs: 10, maxMs: 100 }, acceptOlderAfterMs: 60_000, staleAfterMs: 600 };
  return startRelay(api, { ...timing, ...options });
}

const namesIn = ({ snapshot }: Store): readonly string[] => [...snapshot.services.values()].map(({ name }) => name);

test("a relay refuses an older state of its upstream, and accepts it if nothing newer is offered for a while", async () => {
  const first = await serveStore(kubeStore("new", 20n));
  const { store, lines } = start(first.address, { acceptOlderAfterMs: 2_000 });
  const events: string[] = [];
  store.currency.observe(({ kind }) => events.push(kind));
  await expect.poll(() => namesIn(store), patient).toEqual(["new"]);
  expect(store.snapshot.position).toMatchObject({ source: "kube", services: 20n });
  await first.stop();
  const restored = await serveStore(kubeStore("old", 10n), { listen: [`tcp://${first.address}`] });
  onTestFinished(() => restored.stop());
  await expect.poll(() => namesIn(store), patient).toEqual(["old"]);
  const indexOf = (text: string): number => lines.findIndex((line) => line.includes(text));
  expect(indexOf("offers an older state")).toBeGreaterThan(0);
  expect(indexOf("older state accepted")).toBeGreaterThan(indexOf("offers an older state"));
  expect(events[0]).toBe("stale");
  await expect.poll(() => store.currency.staleReason, patient).toBeUndefined();
});

test("a relay accepts a replica that listed the same state earlier, and keeps its own position", async () => {
  const first = await serveStore(kubeStore("web", 20n));
  const { store, lines } = start(first.address);
  await expect.poll(() => namesIn(store), patient).toEqual(["web"]);
  const { revision } = store.snapshot;
  await first.stop();
  const replica = kubeStore("web", 10n);
  const second = await serveStore(replica, { listen: [`tcp://${first.address}`] });
  onTestFinished(() => second.stop());
  const syncCount = (): number => lines.filter((line) => line.includes("upstream watcher in sync")).length;
  await expect.poll(syncCount, patient).toBe(2);
  expect(store.snapshot.position).toMatchObject({ services: 20n, current: { services: 20n } });
  expect(store.snapshot.revision).toBe(revision);
  expect(lines.filter((line) => line.includes("older state accepted"))).toEqual([]);
  replica.apply([{ kind: "put-service", service: service({ name: "new" }) }], kube(21n));
  await expect.poll(() => namesIn(store), patient).toEqual(["new", "web"]);
});

test("a relay has its upstream's position only together with its state, also when nearly everything goes", async () => {
  const upstream = new Store();
  const show = (version: bigint, names: readonly string[]): void => {
    const services = names.map((name) => service({ name }));
    upstream.replace({ services, slices: [], nodes: [] }, kube(version));
  };
  const many = Array.from({ length: 20 }, (_, index) => `s${index}`);
  show(10n, many);
  const first = await serveStore(upstream);
  const { store, metrics } = start(first.address);
  const connected = async () =>
    /kpng_source_connected\{source="api",kind="all"\} (\d)/.exec(await metrics.metrics())?.[1];
  expect(await connected()).toBe("0");
  const states: string[] = [];
  store.observe(({ next }) => states.push(`${next.services.size} at ${next.position.services}`));
  await expect.poll(() => store.snapshot.services.size, patient).toBe(20);
  expect(await connected()).toBe("1");
  await first.stop();
  show(30n, ["new"]);
  const second = await serveStore(upstream, { listen: [`tcp://${first.address}`] });
  onTestFinished(() => second.stop());
  await expect.poll(() => namesIn(store), patient).toEqual(["new"]);
  show(40n, []);
  await expect.poll(() => store.snapshot.position.services, patient).toBe(40n);
  expect(states).toEqual(["20 at 10", "1 at 30", "0 at 40"]);
});

test("a relay of a watcher that is stale is stale before it has the state, and recovers with it", async () => {
  const upstream = kubeStore("web", 20n);
  upstream.currency.markStale("the API server does not answer");
  const server = await serveStore(upstream);
  onTestFinished(() => server.stop());
  const { store } = start(server.address);
  const reasons: (string | undefined)[] = [];
  store.observe(() => reasons.push(store.currency.staleReason));
  await expect.poll(() => namesIn(store), patient).toEqual(["web"]);
  expect(new Set(reasons)).toEqual(new Set(["the upstream watcher is stale"]));
  upstream.currency.markFresh();
  await expect.poll(() => store.currency.staleReason, patient).toBeUndefined();
  upstream.currency.markStale("the API server does not answer");
  await expect.poll(() => store.currency.staleReason, patient).toBe("the upstream watcher is stale");
});

test("a relay keeps its stream while its upstream is too busy to answer questions", async () => {
  const upstream = kubeStore("web", 20n);
  // The stream of the relay takes the only place.
  const server = await serveStore(upstream, { maxCalls: 1 });
  onTestFinished(() => server.stop());
  const { store, lines } = start(server.address);
  await expect.poll(() => namesIn(store), patient).toEqual(["web"]);
  const refusals = async () => {
    const text = await server.metrics.getSingleMetricAsString("kpng_refused_total");
    return Number(/reason="calls"\} (\d+)/.exec(text)?.[1]);
  };
  await expect.poll(refusals, patient).toBeGreaterThan(3);
  expect(lines.filter((line) => line.includes("upstream watcher lost"))).toEqual([]);
  expect(store.currency.staleReason).toBeUndefined();
});

test("a relay of an original KPNG, which has no positions, is stale from when that stops to answer until there is a stream again", {
  timeout: 120_000,
}, async () => {
  let isFrozen = false;
  let requestCount = 0;
  const startsMs: number[] = [];
  const routes = ({ service: add }: ConnectRouter): void => {
    add(Sets, {
      async *watch(requests, { signal, responseTrailer }) {
        void (async () => {
          for await (const _ of requests) requestCount++;
        })().catch(() => undefined);
        responseTrailer.set("grpc-retry-pushback-ms", "500");
        // The first stream ends with status OK.
        if (startsMs.push(performance.now()) === 1) return;
        yield { Op: { case: "Reset" as const, value: {} } };
        yield { Op: { case: "Sync" as const, value: {} } };
        await aborted(signal);
      },
    });
  };
  const answer = connectNodeAdapter({ routes });
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer((request, response) => {
    if (!isFrozen) answer(request, response);
  });
  server.on("session", (session) => sessions.add(session));
  const api = `127.0.0.1:${await listen(server)}`;
  const breakAll = (): void => {
    for (const session of sessions) session.destroy();
  };
  // Runs after the relay has stopped.
  onTestFinished(() => {
    breakAll();
    server.close();
  });
  const { store } = start(api, { redial: () => dial({ api }) });
  const reports: string[] = [];
  store.currency.observe(({ kind }) => reports.push(kind));
  await expect.poll(() => store.snapshot.isSynced, patient).toBe(true);
  await waitMs(1_000, new AbortController().signal);
  expect(reports).toEqual([]);
  // The first stream's, and that for the first batch and for the next one.
  expect(requestCount).toBe(3);
  const [firstMs = 0, secondMs = 0] = startsMs;
  expect(secondMs - firstMs).toBeGreaterThan(490);
  isFrozen = true;
  await expect.poll(() => reports, patient).toEqual(["stale"]);
  isFrozen = false;
  breakAll();
  // On a busy machine, an answer may be late again.
  await expect.poll(() => reports.slice(0, 2), patient).toEqual(["stale", "fresh"]);
});
