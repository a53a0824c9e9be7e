import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { Registry } from "prom-client";
import { afterAll, beforeAll, describe, type ExpectStatic, expect, test, vi } from "vitest";
import { freePort } from "../../../../test/cluster/ports.ts";
import { loadView, viewPath, writeViewFile } from "../disk/view-file.ts";
import { MemoryRuleSet } from "../testing/memory-rule-set.ts";
import { runProxy } from "../testing/run-proxy.ts";
import { createReadableLog } from "../testing/steps.ts";
import { readProxySettings } from "./proxy-settings.ts";
import { countRepairs, driftCheck } from "./proxy-task.ts";
import { RuleSets } from "./rule-sets.ts";

/** A poll of an event that must happen: how long it takes on a busy machine is no result. */
const poll = { timeout: 30_000, interval: 10 };

const folder = temporaryFolder(afterAll);
const { PATH } = process.env;
beforeAll(() => {
  process.env.PATH = `${folder}:${PATH}`;
  useConntrack("exit 0");
});
afterAll(() => {
  process.env.PATH = PATH;
});

/** Replaces the program `conntrack` by a shell script. */
function useConntrack(script: string): void {
  writeFileSync(join(folder, "conntrack"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
}

/** HTTP status at a health-check port; undefined if nothing listens. */
async function statusAt(number: number): Promise<number | undefined> {
  return fetch(`http://127.0.0.1:${number}/`).then(
    ({ status }) => status,
    () => undefined,
  );
}

/** A load-balanced Service in both families, with an endpoint on this node. */
const checked = (healthCheckNodePort: number) =>
  service("a/web", {
    type: "LoadBalancer",
    ips: ["10.96.0.10", "fd00::10"],
    externalTrafficPolicy: "Local",
    healthCheckNodePort,
    endpoints: [endpoint("10.0.1.1", { isOnNode: true, ports: [{ name: "", port: 80 }] })],
  });

const dns = service("a/dns", {
  ips: ["10.96.0.53"],
  ports: [port(53, { protocol: "UDP" })],
  endpoints: [endpoint("10.0.1.2", { ports: [{ name: "", port: 53, protocol: "UDP" }] })],
});

test("a family that fails leaves health checks and stale flows of the other alone, and is named in health", async () => {
  useConntrack("exit 0");
  const [v4, v6] = [new MemoryRuleSet("v4"), new MemoryRuleSet("v6")];
  v6.failure = new Error("no IPv6 today");
  await using proxy = await runProxy([v4, v6]);
  const number = await freePort();
  proxy.send(checked(number), dns);
  await expect.poll(() => statusAt(number), poll).toBe(200);
  await expect.poll(() => hasSearched(proxy), poll).toBe(true);
  await expect
    .poll(() => Object.fromEntries(proxy.health.parts), poll)
    .toMatchObject({
      "rules/IPv4": { isHealthy: true, isReady: true },
      "rules/IPv6": { isHealthy: false, reason: "no IPv6 today" },
      "health-checks": { isHealthy: true, reason: "" },
      conntrack: { isHealthy: true, reason: "" },
    });
  // The rules of IPv4 are in force and are not compared at every retry.
  const retries = v6.touched.length + 3;
  await expect.poll(() => v6.touched.length, poll).toBeGreaterThan(retries);
  expect(v4.touched.filter((touched) => touched === "all")).toHaveLength(1);
  v6.failure = undefined;
  await expect.poll(() => proxy.health.isHealthy, poll).toBe(true);
});

test("rules that cannot be read do not fail /healthz: they may work", async () => {
  const v4 = new MemoryRuleSet("v4");
  let nowMs = 1e12;
  await using proxy = await runProxy([v4], { now: () => nowMs });
  proxy.send(checked(await freePort()));
  await expect.poll(() => proxy.health.parts.get("rules/IPv4")?.isReady, poll).toBe(true);
  v4.failure = new Error("save failed");
  await expect.poll(() => proxy.health.parts.get("drift")?.isHealthy, poll).toBe(false);
  nowMs += 864e5;
  expect(proxy.proxyHealth.healthz().isOk).toBe(true);
});

test("rules do not wait for a search in the conntrack table", async () => {
  useConntrack("exec sleep 600");
  const v4 = new MemoryRuleSet("v4");
  await using proxy = await runProxy([v4]);
  proxy.send(dns);
  await expect.poll(() => [...v4.lines.keys()], poll).toEqual(["a/dns"]);
  proxy.send(dns, service("a/web"));
  await expect.poll(() => [...v4.lines.keys()], poll).toEqual(["a/dns", "a/web"]);
});

test("a failing search in the conntrack table is named in health without failing it, and repeated", async () => {
  useConntrack("exit 1");
  await using proxy = await runProxy([new MemoryRuleSet("v4")]);
  proxy.send(dns);
  const part = () => proxy.health.parts.get("conntrack");
  await expect.poll(part, poll).toMatchObject({ isHealthy: true, reason: expect.stringContaining("CONNTRACK_FAILED") });
  useConntrack("exit 0");
  await expect.poll(part, poll).toMatchObject({ isHealthy: true, reason: "" });
});

test("--once ends after the search in the conntrack table", async () => {
  useConntrack("sleep 0.3");
  await using proxy = await runProxy([new MemoryRuleSet("v4")], { isOnce: true });
  proxy.send(dns);
  await proxy.ended;
  expect(await hasSearched(proxy)).toBe(true);
});

test("a dry run is an observer, acknowledges no revision and reports none as applied", async () => {
  const ruleSet = new MemoryRuleSet("v4");
  await using proxy = await runProxy([ruleSet], { options: { dryRun: true } });
  proxy.send(service("a/web"));
  await expect.poll(() => ruleSet.touched.length, poll).toBe(1);
  proxy.send(service("a/web"), dns);
  await expect.poll(() => ruleSet.touched.length, poll).toBe(2);
  expect(proxy.requests[0]?.request.Subscriber?.Observes).toBe(true);
  expect(proxy.requests.filter(({ request }) => request.Ack !== undefined)).toEqual([]);
  expect(await proxy.metrics.metrics()).toContain("kpng_backend_revision 0\n");
});

test("a --diff run is an observer, acknowledges no revision and reports none as applied", async () => {
  const { exitCode } = process;
  const write = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  await using proxy = await runProxy([new MemoryRuleSet("v4")], { options: { diff: true } });
  proxy.send(service("a/web"));
  await proxy.ended;
  process.exitCode = exitCode;
  expect(write).toHaveBeenCalledWith("v4 a/web: rules differ\n+ a/web 10.96.0.10:80/TCP\n");
  write.mockRestore();
  expect(proxy.requests[0]?.request.Subscriber?.Observes).toBe(true);
  expect(proxy.requests.filter(({ request }) => request.Ack !== undefined)).toEqual([]);
  expect(await proxy.metrics.metrics()).toContain("kpng_backend_revision 0\n");
});

test("--once gives up when its syncs have failed for --watcher-timeout", async () => {
  const ruleSet = new MemoryRuleSet("v4");
  ruleSet.failure = new Error("not permitted");
  await using proxy = await runProxy([ruleSet], { isOnce: true, firstViewLimitMs: 100 });
  proxy.send(service("a/web"));
  await expect(proxy.ended).rejects.toThrow("not permitted");
});

/** Replaces the saved view of a folder by one that was saved before a reboot. */
async function saveAsOfEarlierBoot(stateFolder: string): Promise<void> {
  const place = { folder: stateFolder, nodeName: "n1", serviceProxyName: "" };
  const saved = await loadView(place);
  if (saved === undefined) throw new Error("no saved view");
  await writeViewFile(viewPath(place), { ...saved.header, bootId: "earlier" }, saved.update.view);
}

describe("after a restart without a watcher", () => {
  beforeAll(() => useConntrack("exit 0"));

  /** Runs a proxy that saves the view of a Service with a health check, and ends. */
  async function saveView(
    ruleSet: MemoryRuleSet,
    stateFolder: string,
    number: number,
    expect: ExpectStatic,
  ): Promise<void> {
    await using proxy = await runProxy([ruleSet], { stateFolder });
    proxy.send(checked(number), dns);
    await expect.poll(() => ruleSet.lines.size, poll).toBe(2);
  }

  test.concurrent.for<{
    readonly name: string;
    readonly meddle: (ruleSet: MemoryRuleSet) => void;
    readonly isRebooted?: boolean;
    readonly left: readonly string[];
  }>([
    { name: "rules of this boot stay as they are", meddle: ({ lines }) => lines.delete("a/web"), left: ["a/dns"] },
    {
      name: "rules of another boot are replaced",
      meddle: ({ lines }) => lines.set("x/old", "x/old"),
      isRebooted: true,
      left: ["a/dns", "a/web"],
    },
    {
      name: "the saved view is installed if nothing is",
      meddle: ({ lines }) => lines.clear(),
      left: ["a/dns", "a/web"],
    },
  ])("$name; health checks are answered, and the watcher's view is synced in full", async (row, { expect }) => {
    const [ruleSet, number] = [new MemoryRuleSet("v4"), await freePort()];
    const stateFolder = join(folder, `state-${number}`);
    await saveView(ruleSet, stateFolder, number, expect);
    row.meddle(ruleSet);
    if (row.isRebooted === true) await saveAsOfEarlierBoot(stateFolder);
    await using proxy = await runProxy([ruleSet], { stateFolder });
    // After a reboot, the pods of this node are gone.
    await expect.poll(() => statusAt(number), poll).toBe(row.isRebooted === true ? 503 : 200);
    expect([...ruleSet.lines.keys()].sort()).toEqual(row.left);
    // Rules that are gone later are installed from the saved view.
    ruleSet.lines.clear();
    await expect.poll(() => ruleSet.lines.has("a/web"), poll).toBe(true);
    expect(await hasSearched(proxy)).toBe(false);
    ruleSet.lines.delete("a/dns");
    proxy.send(checked(number), dns);
    await expect.poll(() => [...ruleSet.lines.keys()].sort(), poll).toEqual(["a/dns", "a/web"]);
  });
});

/** Rule sets of a test without a proxy, and the check of installed rules. */
function withRules(ruleSets: readonly MemoryRuleSet[]) {
  const [health, metrics] = [new Health(), new Registry()];
  const { log, lines } = createReadableLog();
  const settings = readProxySettings({}, true);
  const rules = new RuleSets({ settings, ruleSets, onOutcome: countRepairs(metrics, ruleSets), log });
  const check = driftCheck(rules, 30_000, { log, health, metrics });
  return { rules, health, lines, metrics, check: () => check.run(new AbortController().signal) };
}
const stages = { committing: () => undefined };

test("a check without a view is not counted, because it compared nothing", async () => {
  const { check, metrics } = withRules([new MemoryRuleSet()]);
  await check();
  expect(await metrics.metrics()).toContain('kpng_backend_drift_checks_total{result="ok"} 0');
});

test("a repair counts for its family if another program had changed the rules", async () => {
  const ruleSets = [new MemoryRuleSet("v4"), new MemoryRuleSet("v6")];
  const { rules, metrics } = withRules(ruleSets);
  await rules.sync(view([service("a/web")]), "all", stages);
  await rules.repair();
  ruleSets[0]?.lines.clear();
  await rules.repair();
  const counts = (await metrics.metrics()).split("\n").filter((line) => line.startsWith("kpng_backend_repairs_total{"));
  expect(counts).toEqual([
    'kpng_backend_repairs_total{ip_family="IPv4"} 1',
    'kpng_backend_repairs_total{ip_family="IPv6"} 0',
  ]);
});

test("a check that fails is reported in health, metrics and log until one succeeds", async () => {
  const ruleSet = new MemoryRuleSet();
  const { rules, health, metrics, lines, check } = withRules([ruleSet]);
  await rules.sync(view([service("a/web")]), "all", stages);
  ruleSet.failure = new Error("cannot be read");
  await check();
  expect(health.parts.get("drift")).toEqual({ isHealthy: false, isReady: true, reason: "cannot be read" });
  expect(await metrics.metrics()).toContain('kpng_backend_drift_checks_total{result="failed"} 1');
  expect(lines.filter(({ level }) => level === "error")).toHaveLength(1);
  ruleSet.failure = undefined;
  await check();
  expect(health.parts.get("drift")).toEqual({ isHealthy: true, isReady: true, reason: "" });
  expect(await metrics.metrics()).toContain('kpng_backend_drift_checks_total{result="ok"} 1');
});

/** Whether a proxy has searched the conntrack table. */
async function hasSearched(proxy: { readonly metrics: Registry }): Promise<boolean> {
  return (await proxy.metrics.metrics()).includes("kubeproxy_conntrack_reconciler_sync_duration_seconds_count");
}
