import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, test, vi } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService } from "./objects.ts";
import { applyRbac } from "./rbac.ts";
import { sourceStarter } from "./run-source.ts";
import { tokens, writeTokenFile } from "./users.ts";

const dayMs = 86_400_000;

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

  test("a wall clock that jumps by a day ends no watch and delays no event", async () => {
    const { api, kubeconfig } = cluster();
    const source = start({ kubeconfig: kubeconfig("kpng") });
    await source.untilReady();
    vi.useFakeTimers({ toFake: ["Date"] });
    for (const [index, jumpMs] of [dayMs, -2 * dayMs, dayMs].entries()) {
      vi.setSystemTime(Date.now() + jumpMs);
      const name = `jump-${index}`;
      await createService(api, { name });
      await source.until(name, (sink) => sink.services.includes(`default/${name}`));
    }
    assert.equal(await source.metric("kpng_source_relists_total"), 0);
    assert.equal(await source.metric("kpng_source_watches_total"), 0, "no watch has ended");
    assert.ok(source.health.isHealthy);
  });

  // After a rotation, the server accepts only the new token, so each test starts with the last token of the one before.
  const rotations = [
    { jumpMs: 0, from: "kpng", to: "kpng-rotated" },
    { jumpMs: -dayMs, from: "kpng-rotated", to: "kpng" },
  ] as const;
  for (const { jumpMs, from, to } of rotations) {
    const when = jumpMs === 0 ? "" : ", although the clock was set back meanwhile";
    test(`the source rereads a token at once after it was rotated and revoked${when}`, async () => {
      const { api, apiServer, folder, kubeconfig } = cluster();
      const tokenFile = join(folder, `token${jumpMs}`);
      // A token file may end with a newline.
      writeFileSync(tokenFile, `${tokens[from]}\n`);
      const source = start({ kubeconfig: kubeconfig("kpng", { tokenFile }) });
      await source.untilReady();
      vi.useFakeTimers({ toFake: ["Date"] });
      vi.setSystemTime(Date.now() + jumpMs);

      await apiServer.kill();
      writeFileSync(tokenFile, `${tokens[to]}\n`);
      writeTokenFile(apiServer.tokenFile, ["admin", to]);
      await apiServer.start();
      const name = `rotated-${jumpMs === 0}`;
      await createService(api, { name });
      await source.until(name, (sink) => sink.services.includes(`default/${name}`), 10_000);
      await source.untilHealthy();
      assert.ok((await source.metric("kpng_source_watches_total", { result: "lost" })) > 0);
    });
  }

  test("log, metric and health report a rejected token, and the source uses the valid one that replaces it", async () => {
    const { folder, kubeconfig } = cluster();
    const tokenFile = join(folder, "bad-token");
    writeFileSync(tokenFile, "no-such-token");
    const source = start({ kubeconfig: kubeconfig("kpng", { tokenFile }) });
    await source.untilFailing("services", /^cannot list services \(401\): /);
    assert.ok((await source.metric("kpng_source_lists_total", { result: "refused" })) > 0);
    assert.deepEqual(source.sink.calls, []);
    writeFileSync(tokenFile, tokens.kpng);
    await source.untilReady();
  });
});
