import assert from "node:assert/strict";
import { test } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createPod, createService, untilSlicesHold } from "./objects.ts";

await describeCluster("a control plane of real programs", {}, (cluster) => {
  test("the controller gives a Service with two Pods an EndpointSlice with two endpoints", async () => {
    const { api } = cluster();
    await createNode(api, "node-1");
    await createService(api, { name: "web" });
    await createPod(api, { name: "web-1", app: "web", node: "node-1", ip: "10.244.0.1" });
    await createPod(api, { name: "web-2", app: "web", node: "node-1", ip: "10.244.0.2" });
    const slices = await untilSlicesHold(api, "web", 2);
    assert.equal(
      slices[0]?.metadata.labels?.["endpointslice.kubernetes.io/managed-by"],
      "endpointslice-controller.k8s.io",
    );
  });

  test("a killed API server restarts with the data in etcd", async () => {
    const { api, apiServer } = cluster();
    await apiServer.kill();
    await assert.rejects(api.list("/api/v1/nodes"));
    await apiServer.start();
    const nodes = await api.list("/api/v1/nodes");
    assert.deepEqual(
      nodes.map((node) => node.metadata.name),
      ["node-1"],
    );
  });
});
