import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Duration, durationMs } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { BackendInspectService } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { beforeEach, expect, test } from "vitest";
import { inTurn, startFakeWatcher } from "../testing/fake-watcher.ts";
import { putEndpoint, putService, reset, sync } from "../testing/ops.ts";
import { runBackendTask } from "../testing/run-backend-task.ts";
import { Mailbox } from "../testing/steps.ts";
import type { SyncUpdate } from "../types/sync-update.ts";
import type { InspectedRules } from "./backend-inspection.ts";

let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

const viewOps = [reset, putService("a/1"), putEndpoint("a/1/x"), putService("a/2")];

const sends = inTurn([...viewOps, sync(7n)]);

function start(
  api: string,
  options: Parameters<typeof runBackendTask>[2] = {},
  onSync = (_update: SyncUpdate): void | Promise<void> => undefined,
) {
  const syncs = new Mailbox<SyncUpdate>();
  const onChanges = (update: SyncUpdate) => {
    syncs.put(update);
    return onSync(update);
  };
  const running = runBackendTask(api, { onChanges }, { inspectSocket: join(folder, "sock"), ...options });
  const client = createClient(BackendInspectService, dial({ api: `unix://${join(folder, "sock")}` }));
  return { ...running, syncs, client };
}

const rules: InspectedRules = {
  name: "v4",
  desiredCount: () => 2,
  installedCount: () => 1,
  desired: (service) => (service === undefined ? ["a", "b"] : [`b of ${service}`]),
  installed: (service) => (service === undefined ? ["a"] : []),
  readAtMs: 1_500,
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
  const { duration, timings } = told.lastSync ?? {};
  const ms = (time: Duration | undefined) => (time === undefined ? Number.NaN : durationMs(time));
  expect(ms(duration)).toBeCloseTo(ms(timings?.render) + ms(timings?.commit), 1);
  const [set] = ruleSets;
  expect(set).toMatchObject({ name: "v4", desiredCount: 2, actualCount: 1, repairCount: 3n });
  expect(set?.committedAt).toBeUndefined();
  expect(set?.readAt).toMatchObject({ seconds: 1n, nanos: 500_000_000 });
  expect(set?.drift).toHaveLength(100);
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
  const { client, end } = start(watcher.address, {}, () => Promise.reject(new Error("no room")));
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
