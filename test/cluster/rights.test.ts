import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { createLog } from "@kpng/process/log.ts";
import { connectKube } from "@kpng/source/kube/connect.ts";
import { TokenChecker } from "@kpng/watcher/identity/token-checker.ts";
import { kubeReviews } from "@kpng/watcher/identity/token-review.ts";
import { afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService } from "./objects.ts";
import { applyRbac, mayAccount, refusedRights, watchedKinds } from "./rbac.ts";
import { sourceStarter } from "./run-source.ts";
import { tokens, writeTokenFile } from "./users.ts";

const account = "kpng-watcher";

await describeCluster("the rights of deploy/kubernetes/watcher/rbac.yaml", { hasControllers: false }, (cluster) => {
  const start = sourceStarter();

  describe("rbac.yaml", () => {
    test("rbac.yaml lets the watcher get, list and watch its four kinds and review tokens, and nothing else", async () => {
      const { api } = cluster();
      await applyRbac(api);
      for (const kind of watchedKinds) {
        const verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*"];
        const may = await Promise.all(verbs.map((verb) => mayAccount(api, account, { ...kind, verb })));
        assert.deepEqual(
          verbs.filter((_, at) => may[at]),
          ["get", "list", "watch"],
          kind.resource,
        );
      }
      const reviews = { verb: "create", resource: "tokenreviews", group: "authentication.k8s.io" };
      assert.ok(await mayAccount(api, account, reviews), "may not create tokenreviews");
      for (const right of refusedRights) {
        assert.ok(!(await mayAccount(api, account, right)), `may ${right.verb} ${right.resource}`);
      }
    });
  });

  test("the token of a pod gives the view of its node, until the pod is deleted", async () => {
    const { api, kubeconfig } = cluster();
    await applyRbac(api);
    await createNode(api, "n1");
    await api.create("/api/v1/namespaces/kube-system/pods", {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "backend-1" },
      spec: { nodeName: "n1", serviceAccountName: "kpng-node", containers: [{ name: "main", image: "none" }] },
    });
    const text = await api.requestToken("kpng-node", {
      audiences: ["kpng"],
      boundObjectRef: { kind: "Pod", apiVersion: "v1", name: "backend-1" },
    });
    const checker = new TokenChecker({
      review: kubeReviews(async () => connectKube({ kubeconfig: kubeconfig("kpng") }), "kpng"),
      audience: "kpng",
      accounts: { node: new Set(["kube-system/kpng-node"]), state: new Set(), inspection: new Set() },
      log: createLog("error", () => undefined),
      reviewMs: 500,
      retryMs: 500,
    });
    onTestFinished(() => checker.stop());
    expect(await checker.check(text)).toMatchObject({ rights: { nodes: new Set(["n1"]), hasState: false } });
    const ended = checker.follow(text, "", new PassThrough());
    await api.delete("/api/v1/namespaces/kube-system/pods/backend-1");
    await expect.poll(() => ended.aborted, { timeout: 120_000, interval: 200 }).toBe(true);
    expect(await checker.check(text)).toMatchObject({ kind: "refused" });
  });

  // Last, because it revokes a token.
  describe("credentials and clocks", () => {
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
});
