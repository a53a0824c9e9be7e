import assert from "node:assert/strict";
import { onTestFinished, test } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { applyRbac, clusterRolePath, mayAccount, refusedRights, watchedKinds } from "./rbac.ts";
import { sourceStarter } from "./run-source.ts";
import { until } from "./until.ts";

const account = "kpng-watcher";

await describeCluster("deploy/kubernetes/watcher/rbac.yaml", { hasControllers: false }, (cluster) => {
  const start = sourceStarter();

  test("rbac.yaml lets the watcher get, list and watch its four kinds and review tokens, and nothing else", async () => {
    const { api } = cluster();
    await applyRbac(api);
    for (const kind of watchedKinds) {
      for (const verb of ["get", "list", "watch"]) {
        assert.ok(await mayAccount(api, account, { ...kind, verb }), `may not ${verb} ${kind.resource}`);
      }
      for (const verb of ["create", "update", "patch", "delete", "deletecollection", "*"]) {
        assert.ok(!(await mayAccount(api, account, { ...kind, verb })), `may ${verb} ${kind.resource}`);
      }
    }
    const reviews = { verb: "create", resource: "tokenreviews", group: "authentication.k8s.io" };
    assert.ok(await mayAccount(api, account, reviews), "may not create tokenreviews");
    for (const right of refusedRights) {
      assert.ok(!(await mayAccount(api, account, right)), `may ${right.verb} ${right.resource}`);
    }
  });

  test("rbac.yaml is sufficient for the source to become ready", async () => {
    const { api, kubeconfig } = cluster();
    await applyRbac(api);
    const source = start({ kubeconfig: kubeconfig("kpng") });
    await source.untilReady();
    await source.until("ServiceCIDRs", (sink) => sink.store.snapshot.serviceCIDRs.length === 2);
    assert.ok(!source.lines.some((line) => line.level === "error"), source.describe());
  });

  for (const missing of ["list", "watch"] as const) {
    test(`log and readiness name verb and resource while ${missing} of slices is missing, and the source recovers`, async () => {
      const { api, kubeconfig } = cluster();
      await applyRbac(api);
      onTestFinished(async () => {
        await api.delete(clusterRolePath);
      });
      const role = await api.get(clusterRolePath);
      const rules = role.rules as readonly {
        readonly resources?: readonly string[] | undefined;
        readonly verbs: readonly string[];
      }[];
      const cut = rules.map((rule) =>
        rule.resources?.includes("endpointslices")
          ? { ...rule, verbs: rule.verbs.filter((verb) => verb !== missing) }
          : rule,
      );
      await api.patch(clusterRolePath, { rules: cut });
      const right = { verb: missing, resource: "endpointslices", group: "discovery.k8s.io" };
      await until("the right is revoked", async () => !(await mayAccount(api, account, right)));

      const source = start({ kubeconfig: kubeconfig("kpng") });
      await source.untilFailing(
        "slices",
        new RegExp(`^not allowed to ${missing} endpointslices\\.discovery\\.k8s\\.io \\(403\\): `),
      );
      assert.ok(
        (await source.metric(missing === "list" ? "kpng_source_lists_total" : "kpng_source_watches_total", {
          kind: "slices",
          result: "refused",
        })) > 0,
      );
      if (missing === "list") {
        await source.until("only slices are missing", ({ store }) => store.missingKinds.join() === "slices");
        assert.ok(!source.health.isReady);
      }
      await api.patch(clusterRolePath, { rules });
      await source.untilReady();
      await source.untilHealthy();
    });
  }
});
