import { view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { syncUpdate } from "../testing/sync-update.ts";
import { ProxyHealth } from "./proxy-health.ts";

const update = syncUpdate();

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

const synced = [queue, begin, pass(10), succeed];

test.each<{ readonly name: string; readonly steps: readonly Step[]; readonly fails?: readonly string[] }>([
  { name: "the start", steps: [] },
  { name: "no sync yet, however late", steps: [queue, begin, fail, pass(1e9)] },
  { name: "synced, and the watcher gone for a day", steps: [...synced, pass(864e5)] },
  { name: "a change that waits less than the limit", steps: [...synced, queue, pass(59_999)] },
  { name: "a change that waits longer", steps: [...synced, queue, pass(60_000)], fails: ["healthz"] },
  {
    name: "a change that waits longer, and a later change",
    steps: [...synced, queue, pass(40_000), queue, pass(20_000)],
    fails: ["healthz"],
  },
  {
    name: "syncs that keep failing",
    steps: [...synced, queue, begin, fail, pass(30_000), begin, fail, pass(30_000)],
    fails: ["healthz"],
  },
  {
    name: "a full sync that fails without a change",
    steps: [...synced, begin, fail, pass(60_000)],
    fails: ["healthz"],
  },
  { name: "success after failures", steps: [...synced, queue, begin, fail, pass(1e6), begin, succeed] },
  {
    name: "a change that arrived during a sync and waits longer",
    steps: [...synced, begin, pass(50_000), queue, pass(50_000), succeed, pass(10_000)],
    fails: ["healthz"],
  },
  { name: "changes that cancelled each other out", steps: [...synced, queue, settle, pass(1e9)] },
  { name: "a sync that hangs", steps: [...synced, queue, begin, pass(600_000)], fails: ["livez", "healthz"] },
  { name: "a node that is being removed", steps: [...synced, node(false)], fails: ["healthz"] },
  { name: "a node that stays after all", steps: [...synced, node(false), node(true)] },
  { name: "a node that the cluster does not know", steps: [node(undefined)], fails: ["healthz"] },
  { name: "a Go watcher, which does not send nodes", steps: [node(undefined, "")] },
])("after $name, these probes fail: $fails", ({ steps, fails = [] }) => {
  let nowMs = 1e12;
  const health = new ProxyHealth({ now: () => nowMs });
  for (const step of steps) {
    step(health, (ms) => {
      nowMs += ms;
    });
  }
  const failing = (["livez", "healthz"] as const).filter((probe) => !health[probe]().isOk);
  expect(failing, JSON.stringify(health.healthz().body)).toEqual(fails);
});

test("a proxy that carries traffic is unhealthy until its first sync", () => {
  const health = new ProxyHealth();
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
  const health = new ProxyHealth({ now: () => nowMs });
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
