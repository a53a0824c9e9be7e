import { createReadableLog } from "@kpng/backend-kit/testing/steps.ts";
import { service, view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { driftTask } from "./drift-task.ts";
import { FamilyRules } from "./family-rules.ts";
import { NodeRules } from "./node-rules.ts";
import { BackendIptablesError } from "./read/iptables-error.ts";
import { readSettings } from "./read-settings.ts";

test("a look that fails is told in health, metrics and log, is repeated, and says no more once one succeeds", async () => {
  const clock = new ManualClock();
  const health = new Health();
  const metrics = new Registry();
  const { log, lines } = createReadableLog();
  let standing = "";
  let isBroken = false;
  const kernel = {
    read: async (take: (text: string) => void) => {
      if (isBroken) throw new BackendIptablesError("SAVE_FAILED", "iptables-save failed (exit 4): no");
      take(standing);
    },
    restore: async (text: string) => {
      standing += text;
    },
  };
  const families = [{ family: "v4", rules: new FamilyRules(kernel, log) }] as const;
  const rules = new NodeRules(readSettings({}, ""), families, () => undefined, log);
  await rules.sync(view([service("a/web")]), "all");
  const stop = new AbortController();
  const ended = driftTask({ rules, driftMs: 30_000, log, health, metrics, wait: clock.wait }).run(stop.signal);
  isBroken = true;
  await clock.advance(5_000);
  // A look reads files of the kernel, which takes as long as it takes.
  await expect
    .poll(() => health.parts.get("drift"))
    .toEqual({
      isHealthy: false,
      isReady: true,
      reason: "[SAVE_FAILED] iptables-save failed (exit 4): no",
    });
  expect(await metrics.metrics()).toContain('kpng_iptables_drift_checks_total{result="failed"} 1');
  expect(lines.filter(({ level }) => level === "error").map(({ msg }) => msg)).toEqual(["rules could not be checked"]);
  isBroken = false;
  await clock.advance(60_000);
  await expect.poll(() => health.parts.get("drift")).toEqual({ isHealthy: true, isReady: true, reason: "" });
  expect(await metrics.metrics()).toMatch(/kpng_iptables_drift_checks_total\{result="ok"\} [1-9]/);
  stop.abort();
  await ended;
});
