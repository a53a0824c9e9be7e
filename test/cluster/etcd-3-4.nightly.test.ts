import assert from "node:assert/strict";
import { test } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService, createSlice } from "./objects.ts";
import { sourceStarter } from "./run-source.ts";

const refused = "streamed lists not supported, using paged lists";

await describeCluster("a cluster on Debian's etcd 3.4", { etcd: "etcd-3.4", hasControllers: false }, (cluster) => {
  const start = sourceStarter();

  test("the API server rejects streamed lists inside the stream; the source lists by pages, and watches", async () => {
    const { api, kubeconfig } = cluster();
    await createNode(api, "node-1");
    await createService(api, { name: "web" });
    const source = start({ kubeconfig: kubeconfig("admin") });
    await source.untilReady();
    assert.ok(source.hasLogged(refused, /RequestWatchProgress is disabled/), source.describe());
    assert.ok(!source.lines.some((line) => line.level === "error"), source.describe());
    assert.equal(await source.metric("kpng_source_watches_total", { result: "watch-list-refused" }), 4);
    assert.deepEqual(source.sink.services, ["default/kubernetes", "default/web"]);
    await createSlice(api, { name: "later", service: "web", addresses: ["10.6.0.1"] });
    await source.until("the later slice", (sink) => sink.slices.includes("default/web/later"));
  });
});
