import assert from "node:assert/strict";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { test } from "vitest";
import { makeDecodeOptions } from "../decode/decoded.ts";
import { kubeSource } from "./kube-source.ts";
import { FakeServer, nodeList, rawNode, watchEvent } from "./testing/fake-server.ts";

test("a server without ServiceCIDRs gives a ready and healthy source, and is not asked for them again", async () => {
  const server = new FakeServer((url) => {
    if (url.pathname.endsWith("/servicecidrs")) return { status: 404, lines: [{ code: 404, message: "not found" }] };
    return url.searchParams.has("watch") ? { lines: [], after: "hang" } : nodeList("1", []);
  });
  const health = new Health();
  const stop = new AbortController();
  const kinds: string[] = [];
  const source = kubeSource({
    connection: server,
    sink: {
      find: () => undefined,
      apply: () => undefined,
      replace: (objects) => void kinds.push(...Object.keys(objects)),
    },
    decode: makeDecodeOptions(),
    metrics: new Registry(),
    health,
    log: createLog("error", (line) => assert.fail(line)),
    timing: { backoff: { minMs: 1, maxMs: 1 } },
  });
  const done = source.run(stop.signal);
  for (let turn = 0; server.requests.length < 7 && turn < 500; turn++) await new Promise((next) => setTimeout(next, 1));
  await new Promise((next) => setTimeout(next, 20));
  assert.deepEqual(kinds.toSorted(), ["nodes", "services", "slices"]);
  assert.ok(health.isReady && health.isHealthy);
  assert.deepEqual([...health.parts.keys()].sort(), [
    "source/kube/nodes",
    "source/kube/services",
    "source/kube/slices",
  ]);
  assert.equal(server.requests.filter((url) => url.pathname.endsWith("/servicecidrs")).length, 1);
  stop.abort();
  await done;
});

test("metrics count lost watches, and report whether the source is connected", async () => {
  let isReachable = true;
  let watches = 0;
  const server = new FakeServer((url) => {
    if (!url.searchParams.has("watch")) return nodeList("1", []);
    if (!url.pathname.endsWith("/nodes")) return { lines: [], after: "hang" };
    if (!isReachable) return { status: 500, lines: [{ code: 500, message: "etcd is unavailable" }] };
    watches += 1;
    if (watches > 1) return { lines: [], after: "hang" };
    isReachable = false;
    return { lines: [watchEvent("ADDED", rawNode("a", "2"))], after: "break" };
  });
  const registry = new Registry();
  const stop = new AbortController();
  const source = kubeSource({
    connection: server,
    sink: { find: () => undefined, apply: () => undefined, replace: () => undefined },
    decode: makeDecodeOptions(),
    metrics: registry,
    health: new Health(),
    log: createLog("error", () => undefined),
    timing: { backoff: { minMs: 1, maxMs: 1 } },
  });
  const value = async (series: string): Promise<number> => {
    const line = (await registry.metrics()).split("\n").find((each) => each.startsWith(`kpng_source_${series} `));
    return Number(line?.split(" ").at(-1));
  };
  const becomes = async (series: string, wanted: number): Promise<void> => {
    for (let turn = 0; (await value(series)) !== wanted && turn < 2_000; turn++) {
      await new Promise((next) => setTimeout(next, 1));
    }
    assert.equal(await value(series), wanted, series);
  };
  const done = source.run(stop.signal);
  await becomes('connected{source="kube",kind="services"}', 1);
  await becomes('connected{source="kube",kind="nodes"}', 0);
  assert.ok((await value('watches_total{kind="nodes",result="lost"}')) > 0);
  isReachable = true;
  await becomes('connected{source="kube",kind="nodes"}', 1);
  stop.abort();
  await done;
});
