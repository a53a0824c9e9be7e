import { service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { SyncRequests } from "../sync/sync-requests.ts";
import { MemoryRuleSet } from "../testing/memory-rule-set.ts";
import { createReadableLog } from "../testing/steps.ts";
import { driftCheck } from "./drift-check.ts";
import { readProxySettings } from "./proxy-settings.ts";
import { RuleSets } from "./rule-sets.ts";

test("a check without a view is not counted, because it compared nothing", async () => {
  const metrics = new Registry();
  const { log } = createReadableLog();
  const settings = readProxySettings({}, true);
  const rules = new RuleSets({ settings, ruleSets: [new MemoryRuleSet()], onOutcome: () => undefined, log });
  const pace = { intervalMs: 30_000, errorDelayMs: 1_000, requests: new SyncRequests() };
  await driftCheck({ name: "test", rules, log, health: new Health(), metrics, ...pace }).run(
    new AbortController().signal,
  );
  expect(await metrics.metrics()).toContain('kpng_test_drift_checks_total{result="ok"} 0');
});

test("a check that fails is reported in health, metrics and log until one succeeds", async () => {
  const health = new Health();
  const metrics = new Registry();
  const { log, lines } = createReadableLog();
  const ruleSet = new MemoryRuleSet();
  const rules = new RuleSets({
    settings: readProxySettings({}, true),
    ruleSets: [ruleSet],
    onOutcome: () => undefined,
    log,
  });
  await rules.sync(view([service("a/web")]), "all", { committing: () => undefined });
  const requests = new SyncRequests();
  const pace = { intervalMs: 30_000, errorDelayMs: 1_000, requests, nowMs: () => 0 };
  const check = driftCheck({ name: "test", rules, log, health, metrics, ...pace });
  ruleSet.failure = new Error("cannot be read");
  await check.run(new AbortController().signal);
  expect(health.parts.get("drift")).toEqual({ isHealthy: false, isReady: true, reason: "cannot be read" });
  expect(await metrics.metrics()).toContain('kpng_test_drift_checks_total{result="failed"} 1');
  expect(lines.filter(({ level }) => level === "error").map(({ msg }) => msg)).toEqual([
    "check of installed rules failed: trying again",
  ]);
  expect(requests.nextAtMs).toBeGreaterThan(0);
  expect(requests.nextAtMs).toBeLessThanOrEqual(1_000);
  ruleSet.failure = undefined;
  await check.run(new AbortController().signal);
  expect(health.parts.get("drift")).toEqual({ isHealthy: true, isReady: true, reason: "" });
  expect(await metrics.metrics()).toContain('kpng_test_drift_checks_total{result="ok"} 1');
});
