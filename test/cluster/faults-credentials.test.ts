import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, test, vi } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService } from "./objects.ts";
import { applyRbac } from "./rbac.ts";
import { sourceStarter } from "./run-source.ts";
import { tokens, writeTokenFile } from "./users.ts";

await describeCluster("faults of credentials and clocks", { hasControllers: false }, (cluster) => {
  const start = sourceStarter();

  beforeAll(async () => {
    const { api } = cluster();
    await createNode(api, "node-1");
    await applyRbac(api);
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  test("the source rereads a token at once after it was rotated and revoked, although the clock was set back", async () => {
    const { api, apiServer, folder, kubeconfig } = cluster();
    const tokenFile = join(folder, "token");
    // A token file may end with a newline.
    writeFileSync(tokenFile, `${tokens.kpng}\n`);
    const source = start({ kubeconfig: kubeconfig("kpng", { tokenFile }) });
    await source.untilReady();
    vi.useFakeTimers({ toFake: ["Date"] });
    vi.setSystemTime(Date.now() - 86_400_000);

    await apiServer.kill();
    writeFileSync(tokenFile, `${tokens["kpng-rotated"]}\n`);
    writeTokenFile(apiServer.tokenFile, ["admin", "kpng-rotated"]);
    await apiServer.start();
    await createService(api, { name: "rotated" });
    await source.until("the Service", (sink) => sink.services.includes("default/rotated"), 10_000);
    await source.untilHealthy();
    assert.ok((await source.metric("kpng_source_watches_total", { result: "lost" })) > 0);
  });

  test("log, metric and health report a rejected token, and the source uses the valid one that replaces it", async () => {
    const { folder, kubeconfig } = cluster();
    const tokenFile = join(folder, "bad-token");
    writeFileSync(tokenFile, "no-such-token");
    const source = start({ kubeconfig: kubeconfig("kpng", { tokenFile }) });
    await source.untilFailing("services", /^cannot list services \(401\): /);
    assert.ok((await source.metric("kpng_source_lists_total", { result: "refused" })) > 0);
    assert.deepEqual(source.sink.calls, []);
    writeFileSync(tokenFile, tokens["kpng-rotated"]);
    await source.untilReady();
  });
});
