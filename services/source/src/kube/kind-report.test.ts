import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { KindReport, makeSourceMetrics } from "./kind-report.ts";

test("a kind stays unhealthy while deletions wait, even if a watch fails and works again", () => {
  const health = new Health();
  const log = createLog("error", () => undefined);
  const report = new KindReport("services", { metrics: makeSourceMetrics(new Registry()), health, log });
  report.listed(1, 0);
  report.deletionsHeld({ currentCount: 5_000, deletedCount: 4_999 }, 31_000);
  report.failed({ verb: "watch", resource: "services", kind: "lost", message: "ECONNRESET" }, 800);
  report.progressed();
  expect(health.parts.get("source/kube/services")).toEqual({
    isHealthy: false,
    isReady: true,
    reason: "a list would delete 4999 of 5000 services; listing again to confirm it",
  });
  report.listed(5_000, 0);
  expect(health.isHealthy).toBe(true);
});
