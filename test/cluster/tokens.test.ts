import { Code } from "@connectrpc/connect";
import { createLog } from "@kpng/process/log.ts";
import { TokenChecker } from "@kpng/watcher/identity/token-checker.ts";
import { kubeReviews } from "@kpng/watcher/identity/token-review.ts";
import { connectKube } from "@kpng/watcher/source/kube/connect.ts";
import { expect, onTestFinished, test } from "vitest";
import type { ApiClient } from "./api-client.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode } from "./objects.ts";
import { applyRbac } from "./rbac.ts";

// Tokens that a real API server issues and reviews, with the rights of deploy/kubernetes/watcher/rbac.yaml.
await describeCluster("ServiceAccount tokens", { hasControllers: false }, (cluster) => {
  const serviceAccounts = "/api/v1/namespaces/kube-system/serviceaccounts";
  const pods = "/api/v1/namespaces/kube-system/pods";
  const limit = { timeout: 120_000, interval: 200 };

  /** Creates a backend's pod on a node, and returns the token that its kubelet would project. */
  async function createBackend(api: ApiClient, name: string, node: string, audience = "kpng"): Promise<string> {
    await api
      .create(serviceAccounts, { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "kpng-node" } })
      .catch(() => undefined);
    await createNode(api, node).catch(() => undefined);
    await api.create(pods, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name },
      spec: { nodeName: node, serviceAccountName: "kpng-node", containers: [{ name: "main", image: "none" }] },
    });
    const request = {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: { audiences: [audience], boundObjectRef: { kind: "Pod", apiVersion: "v1", name } },
    };
    const answer = await api.call("POST", `${serviceAccounts}/kpng-node/token`, request);
    return (answer as { readonly status: { readonly token: string } }).status.token;
  }

  function startChecker(): TokenChecker {
    const kubeconfig = cluster().kubeconfig("kpng");
    const checker = new TokenChecker({
      review: kubeReviews(async () => connectKube({ kubeconfig }), "kpng"),
      audience: "kpng",
      accounts: { node: new Set(["kube-system/kpng-node"]), state: new Set(), inspection: new Set() },
      log: createLog("error", () => undefined),
      reviewMs: 500,
      retryMs: 500,
    });
    checker.start();
    onTestFinished(() => checker.stop());
    return checker;
  }

  /** Checks a token, and returns it as one with a call in progress. */
  async function accept(checker: TokenChecker, text: string) {
    const result = await checker.check(text);
    if (result.kind === "refused") throw new Error(result.problem.message);
    result.token.calls += 1;
    return result.token;
  }

  test("the token of a pod gives the view of its node, until the pod is deleted", async () => {
    const { api } = cluster();
    await applyRbac(api);
    const checker = startChecker();
    const text = await createBackend(api, "backend-1", "n1");
    const token = await accept(checker, text);
    expect(token).toMatchObject({ rights: { nodes: new Set(["n1"]), hasState: false } });
    await api.delete(`${pods}/backend-1`);
    await expect.poll(() => token.ended.aborted, limit).toBe(true);
    expect(await checker.check(text)).toMatchObject({ kind: "refused" });
  });

  test("a token of the same pod for the API server itself is refused", async () => {
    const { api } = cluster();
    await applyRbac(api);
    const text = await createBackend(api, "backend-2", "n1", "https://kubernetes.default.svc");
    const problem = { message: expect.stringContaining("another audience") };
    expect(await startChecker().check(text)).toMatchObject({ kind: "refused", problem });
  });

  test("while the API server is down, an accepted token stays, and a new one waits until it is back", async () => {
    const { api, apiServer } = cluster();
    await applyRbac(api);
    const checker = startChecker();
    const known = await accept(checker, await createBackend(api, "backend-3", "n3"));
    const text = await createBackend(api, "backend-4", "n4");
    await apiServer.kill();
    expect(await checker.check(text)).toMatchObject({ problem: { code: Code.Unavailable } });
    await apiServer.start();
    await expect.poll(async () => (await checker.check(text)).kind, limit).toBe("accepted");
    expect(known.ended.aborted).toBe(false);
  });
});
