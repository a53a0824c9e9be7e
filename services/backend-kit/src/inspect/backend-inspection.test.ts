import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code, createClient } from "@connectrpc/connect";
import { BackendInspectService } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type BackendTaskOptions, backendTask } from "../backend/backend-task.ts";
import { type Answer, silence, startFakeWatcher } from "../testing/fake-watcher.ts";
import { putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { createInstantWait, createReadableLog, Mailbox } from "../testing/steps.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import type { InspectedRules } from "./backend-inspection.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-inspect-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const sends: Answer = (request) =>
  request.index === 0
    ? [reset, putService("a/1"), putEndpoint("a/1/x"), putService("a/2"), sync(7n)]
    : silence(request);

function start(api: string, options: Partial<BackendTaskOptions> = {}) {
  const syncs = new Mailbox<SyncUpdate>();
  const stop = new AbortController();
  const task = backendTask({
    name: "test",
    transport: dial({ api }),
    nodeName: "n1",
    log: createReadableLog().log,
    health: new Health(),
    metrics: new Registry(),
    wait: createInstantWait().wait,
    onChanges: (update: SyncUpdate) => syncs.put(update),
    inspectSocket: join(folder, "sock"),
    ...options,
  } as BackendTaskOptions);
  const ended = task.run(stop.signal);
  return {
    syncs,
    ended,
    client: createClient(BackendInspectService, dial({ api: `unix://${join(folder, "sock")}` })),
    end: async () => {
      stop.abort();
      await ended;
    },
  };
}

const rules: InspectedRules = {
  name: "v4",
  desiredCount: () => 2,
  actualCount: () => 1,
  desired: (service) => (service === undefined ? ["a", "b"] : [`b of ${service}`]),
  actual: (service) => (service === undefined ? ["a"] : []),
  readAtMs: 1_500,
  lastTransaction: "x".repeat(100_000),
  committedAtMs: undefined,
  drift: Array.from({ length: 150 }, (_, at) => `rule ${at}`),
  repairCount: 3,
};

test("inspection shows the view, the last sync, and the rules within limits", async () => {
  await using watcher = await startFakeWatcher(sends);
  const { syncs, client, end } = start(watcher.address, { ruleSets: () => [rules] });
  await syncs.next();
  // The answer changes one turn of the event loop after the sync.
  await expect.poll(async () => (await client.getBackend({})).lastSync?.revision).toBe(7n);
  const { ruleSets, ...told } = await client.getBackend({});
  expect(told).toMatchObject({
    program: "kpng-test",
    nodeName: "n1",
    isConnected: true,
    receivedRevision: 7n,
    appliedRevision: 7n,
    serviceCount: 2,
    endpointCount: 1,
    lastSync: { isFull: true, error: "" },
  });
  const [set] = ruleSets;
  expect(set).toMatchObject({ name: "v4", desiredCount: 2, actualCount: 1, repairCount: 3n });
  expect(set?.committedAt).toBeUndefined();
  expect(set?.readAt).toMatchObject({ seconds: 1n, nanos: 500_000_000 });
  expect([set?.lastTransaction.length, set?.drift.length]).toEqual([65_536, 100]);
  expect((await client.listRules({ ruleSet: "v6" })).ruleSets).toEqual([]);
  expect((await client.listRules({})).ruleSets).toMatchObject([{ desired: ["a", "b"], actual: ["a"] }]);
  const ofOne = await client.listRules({ ruleSet: "v4", service: "ns/web" });
  expect(ofOne.ruleSets).toMatchObject([{ desired: ["b of ns/web"], actual: [] }]);
  await expect(client.listRules({ service: "web" })).rejects.toMatchObject({ code: Code.InvalidArgument });
  expect(statSync(join(folder, "sock")).mode & 0o777).toBe(0o660);
  await end();
});

test("inspection shows the reason of a failed sync, and no revision as applied", async () => {
  await using watcher = await startFakeWatcher(sends);
  const onChanges = () => Promise.reject(new Error("no room"));
  const { client, end } = start(watcher.address, { onChanges } as Partial<BackendTaskOptions>);
  await expect.poll(async () => (await client.getBackend({})).lastSync?.error).toBe("no room");
  expect(await client.getBackend({})).toMatchObject({ receivedRevision: 7n, appliedRevision: 0n });
  await expect(client.listRules({})).rejects.toMatchObject({ code: Code.Unimplemented });
  await end();
});

test("a socket that cannot be opened ends the backend with an error, and a stale socket is replaced", async () => {
  await using watcher = await startFakeWatcher(sends);
  writeFileSync(join(folder, "file"), "");
  const refused = start(watcher.address, { inspectSocket: join(folder, "file") });
  await expect(refused.ended).rejects.toThrow("[LISTEN_FAILED]");
  const first = start(watcher.address);
  await first.syncs.next();
  await first.end();
  const second = start(watcher.address);
  await expect.poll(async () => (await second.client.getBackend({})).nodeName).toBe("n1");
  await second.end();
});
