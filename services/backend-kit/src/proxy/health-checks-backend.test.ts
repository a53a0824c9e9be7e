import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { putService, reset, sync } from "../testing/ops.ts";
import { playWatcher } from "../testing/played-watcher.ts";
import { createReadableLog } from "../testing/steps.ts";
import { healthChecksBackend } from "./health-checks-backend.ts";

test("to-healthchecks follows a watcher, and ends after one sync with --once", async () => {
  await using watcher = await playWatcher(() => [reset, putService("a/web"), sync()]);
  const { log, lines } = createReadableLog();
  const context = { nodeName: "n1", serviceProxyName: "", errorDelayMs: 1_000, isOnce: true, log };
  const task = healthChecksBackend.makeTask(
    { nodeportAddresses: ["127.0.0.0/8"] },
    { ...context, transport: dial({ api: watcher.address }), health: new Health(), metrics: new Registry() },
  );
  await task.run(AbortSignal.timeout(10_000));
  expect(lines).toContainEqual(expect.objectContaining({ msg: "sync complete", backend: "healthchecks" }));
});

test("invalid node-port addresses are refused at the start", () => {
  const context = {} as Parameters<typeof healthChecksBackend.makeTask>[1];
  expect(() => healthChecksBackend.makeTask({ nodeportAddresses: ["eth0"] }, context)).toThrow("[BAD_OPTION]");
});
