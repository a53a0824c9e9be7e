import { request } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import type { SyncUpdate } from "../types/sync-update.ts";
import { ProxyHealth, proxyObserveTasks } from "./proxy-health.ts";

const update: SyncUpdate = {
  view: view([]),
  touched: new Set(),
  counts: { services: 0, endpoints: 0 },
  isFirst: false,
  revision: 1n,
  instance: "run",
  mode: "partial",
  fullReason: "",
};

type Step = (health: ProxyHealth, advance: (ms: number) => void) => void;
const queue: Step = (health) => health.queued(update);
const begin: Step = (health) => health.started();
const succeed: Step = (health) => health.succeeded(update);
const settle: Step = (health) => health.settled();
const fail: Step = (health) => health.failed();
const pass =
  (ms: number): Step =>
  (_health, advance) =>
    advance(ms);
const node =
  (isEligible: boolean | undefined, instance = "run"): Step =>
  (health) => {
    const known = view([], { isEligible: isEligible === true });
    health.queued({ ...update, instance, view: isEligible === undefined ? { ...known, node: undefined } : known });
  };

interface Case {
  readonly name: string;
  readonly steps: readonly Step[];
  readonly livez: boolean;
  readonly healthz: boolean;
}

const synced = [queue, begin, pass(10), succeed];

test.each<Case>([
  { name: "the start", steps: [], livez: true, healthz: true },
  {
    name: "no sync yet, however late",
    steps: [queue, begin, fail, pass(1e9)],
    livez: true,
    healthz: true,
  },
  { name: "synced, and the watcher gone for a day", steps: [...synced, pass(864e5)], livez: true, healthz: true },
  {
    name: "a change that waits less than the limit",
    steps: [...synced, queue, pass(59_999)],
    livez: true,
    healthz: true,
  },
  { name: "a change that waits longer", steps: [...synced, queue, pass(60_000)], livez: true, healthz: false },
  {
    name: "a change that waits longer, and a later change",
    steps: [...synced, queue, pass(40_000), queue, pass(20_000)],
    livez: true,
    healthz: false,
  },
  {
    name: "syncs that keep failing",
    steps: [...synced, queue, begin, fail, pass(30_000), begin, fail, pass(30_000)],
    livez: true,
    healthz: false,
  },
  {
    name: "a full sync that fails without a change",
    steps: [...synced, begin, fail, pass(60_000)],
    livez: true,
    healthz: false,
  },
  {
    name: "success after failures",
    steps: [...synced, queue, begin, fail, pass(1e6), begin, succeed],
    livez: true,
    healthz: true,
  },
  {
    name: "a change that arrived during a sync and waits longer",
    steps: [...synced, begin, pass(50_000), queue, pass(50_000), succeed, pass(10_000)],
    livez: true,
    healthz: false,
  },
  {
    name: "changes that cancelled each other out",
    steps: [...synced, queue, settle, pass(1e9)],
    livez: true,
    healthz: true,
  },
  { name: "a sync that hangs", steps: [...synced, queue, begin, pass(600_000)], livez: false, healthz: false },
  { name: "a node that is being removed", steps: [...synced, node(false)], livez: true, healthz: false },
  { name: "a node that stays after all", steps: [...synced, node(false), node(true)], livez: true, healthz: true },
  { name: "a node that the cluster does not know", steps: [node(undefined)], livez: true, healthz: false },
  { name: "a Go watcher, which does not send nodes", steps: [node(undefined, "")], livez: true, healthz: true },
])("$name: livez $livez, healthz $healthz", ({ steps, livez, healthz }) => {
  let nowMs = 1e12;
  const health = new ProxyHealth({ families: ["v4"], now: () => nowMs });
  for (const step of steps) {
    step(health, (ms) => {
      nowMs += ms;
    });
  }
  expect({ livez: health.livez().isOk, healthz: health.healthz().isOk }, JSON.stringify(health.healthz().body)).toEqual(
    {
      livez,
      healthz,
    },
  );
});

test("a proxy that carries traffic is unhealthy until its first sync", () => {
  const health = new ProxyHealth({ families: ["v4", "v6"] });
  health.requireFirstSync();
  health.setFamilies(["v4"]);
  expect(health.healthz()).toMatchObject({ isOk: false, body: { reason: "IPv4: nothing is served yet" } });
  expect(health.livez().isOk).toBe(true);
  for (const step of [queue, begin, fail]) step(health, () => undefined);
  expect(health.healthz().isOk).toBe(false);
  health.succeeded(update);
  expect(health.healthz().isOk).toBe(true);
});

test("the bodies have kube-proxy's fields, and lastUpdated is now while the proxy is healthy", () => {
  let nowMs = Date.UTC(2026, 0, 1);
  const health = new ProxyHealth({ families: ["v4", "v6"], now: () => nowMs });
  health.succeeded(update);
  nowMs += 3_600_000;
  const family = { lastUpdated: "2026-01-01T00:00:00.000Z", healthy: true };
  const common = {
    lastUpdated: "2026-01-01T01:00:00.000Z",
    currentTime: "2026-01-01T01:00:00.000Z",
    healthy: true,
    status: { IPv4: family, IPv6: family },
  };
  expect(health.healthz().body).toEqual({ ...common, nodeEligible: true });
  expect(health.livez().body).toEqual(common);
});

async function unusedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Asks for a path as it is, which fetch does not do. */
async function statusOf(address: string, path: string): Promise<number | undefined> {
  const { hostname, port } = new URL(`http://${address}`);
  const answer = Promise.withResolvers<number | undefined>();
  request({ hostname, port, path }, (response) => {
    response.resume();
    answer.resolve(response.statusCode);
  })
    .on("error", answer.reject)
    .end();
  return answer.promise;
}

test("probes are answered and counted under kube-proxy's names", async () => {
  const proxyHealth = new ProxyHealth({ families: ["v4"] });
  const metrics = new Registry();
  const health = new Health();
  health.setWaiting("iptables", "not yet synced");
  const address = `127.0.0.1:${await unusedPort()}`;
  const addresses = { healthzBindAddress: address, metricsBindAddress: address };
  const tasks = proxyObserveTasks(addresses, { proxyHealth, health, metrics, mode: "iptables" });
  expect(tasks.length).toBe(1);
  const stop = new AbortController();
  const running = tasks[0]?.run(stop.signal);
  const ask = async (path: string) => {
    const response = await fetch(`http://${address}${path}`);
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  const healthz = await ask("/healthz");
  expect([healthz.status, healthz.headers.get("x-content-type-options")]).toEqual([200, "nosniff"]);
  expect(JSON.parse(healthz.text)).toMatchObject({ nodeEligible: true, healthy: true });
  proxyHealth.queued({
    view: view([], { isEligible: false }),
    touched: new Set(),
    counts: { services: 0, endpoints: 0 },
    isFirst: true,
    revision: 1n,
    instance: "x",
  });
  expect((await ask("/healthz")).status).toBe(503);
  expect((await ask("/livez")).status).toBe(200);
  expect((await ask("/readyz")).status).toBe(503);
  expect((await ask("/proxyMode")).text).toBe("iptables");
  expect(await statusOf(address, "//")).toBe(404);
  expect((await ask("/livez?verbose")).status).toBe(200);
  const text = (await ask("/metrics")).text;
  expect(text).toContain('kubeproxy_proxy_healthz_total{code="200"} 1\nkubeproxy_proxy_healthz_total{code="503"} 1\n');
  expect(text).toContain('kubeproxy_proxy_livez_total{code="200"} 2\n');
  expect(text).toContain('kpng_part_ready{part="iptables"} 0\n');
  expect(text).toMatch(/^kpng_build_info\{version="\d+\.\d+\.\d+[^"]*",nodejs="v\d+[^"]*"\} 1$/m);
  stop.abort();
  await running;
});

test("without an address nothing is served", () => {
  const options = { proxyHealth: new ProxyHealth({ families: [] }), health: new Health(), metrics: new Registry() };
  expect(proxyObserveTasks({}, { ...options, mode: "nft" })).toEqual([]);
});
