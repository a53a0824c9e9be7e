import assert from "node:assert/strict";
import { test } from "vitest";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createPod, createService, createSlice } from "./objects.ts";
import { sourceStarter } from "./run-source.ts";

await describeCluster("the Kubernetes source on a real cluster", {}, (cluster) => {
  const start = sourceStarter();

  test("the source delivers each kind as a whole first, and then its changes", async () => {
    const { api, kubeconfig } = cluster();
    await createNode(api, "node-1", "zone-b");
    await createService(api, { name: "web" });
    const source = start({ kubeconfig: kubeconfig("admin") });
    await source.untilReady();
    for (const kind of ["services", "slices", "nodes"] as const) assert.equal(source.sink.replaceCountOf(kind), 1);
    assert.deepEqual(source.sink.services, ["default/kubernetes", "default/web"]);
    assert.equal(source.sink.store.snapshot.nodes.get("node-1")?.zone, "zone-b");

    await createPod(api, { name: "web-1", app: "web", node: "node-1", ip: "10.244.0.1" });
    await createPod(api, { name: "web-2", app: "web", node: "node-1", ip: "10.244.0.2" });
    await source.until("two endpoints", (sink) => sink.addressesOf("default/web").length === 2);
    await api.delete("/api/v1/namespaces/default/pods/web-1");
    await source.until("one endpoint", (sink) => sink.addressesOf("default/web").length === 1);
    await api.delete("/api/v1/namespaces/default/services/web");
    await source.until("the Service is gone", (sink) => !sink.services.includes("default/web"));
    for (const kind of ["services", "slices", "nodes"] as const) assert.equal(source.sink.replaceCountOf(kind), 1);
    assert.deepEqual(source.sink.store.snapshot.serviceCIDRs, ["10.96.0.0/16", "fd00:10:96::/108"]);
  });

  test("neither a change of metadata nor a kubelet's heartbeat creates a revision", async () => {
    const { api, kubeconfig } = cluster();
    const source = start({ kubeconfig: kubeconfig("admin") });
    await source.untilReady();
    await source.until("the ranges of cluster IPs", (sink) => sink.store.snapshot.serviceCIDRs.length > 0);
    const { revision } = source.sink.store.snapshot;
    const [service, node] = ["/api/v1/namespaces/default/services/kubernetes", "/api/v1/nodes/node-1"];
    await api.patch(service, { metadata: { annotations: { "a/b": "c" } } });
    const heartbeat = {
      type: "Ready",
      status: "True",
      reason: "KubeletReady",
      lastHeartbeatTime: "2026-01-01T00:00:00Z",
    };
    await api.patch(`${node}/status`, { status: { conditions: [heartbeat] } });
    // Events of a kind arrive in order: once these two changes are stored, the other two have been received.
    await api.patch(service, { spec: { sessionAffinity: "ClientIP" } });
    await api.patch(node, { metadata: { labels: { "topology.kubernetes.io/zone": "z" } } });
    const { store } = source.sink;
    await source.until("both changes", () => {
      const { services, nodes } = store.snapshot;
      const [changed, moved] = [services.get("default/kubernetes"), nodes.get("node-1")];
      return changed?.clientIPAffinitySeconds !== undefined && moved?.labels["topology.kubernetes.io/zone"] === "z";
    });
    assert.equal(store.snapshot.revision, revision + 2);
    await api.patch(service, { spec: { sessionAffinity: "None", sessionAffinityConfig: null } });
    await api.patch(node, { metadata: { labels: { "topology.kubernetes.io/zone": null } } });
  });

  test("the source reads the same objects from pages of two", async () => {
    const { api, kubeconfig } = cluster();
    for (const index of [1, 2, 3, 4, 5]) {
      await createSlice(api, { name: `many-${index}`, service: "many", addresses: [`10.2.0.${index}`] });
    }
    const source = start({ kubeconfig: kubeconfig("admin"), timing: { pageSize: 2 } });
    await source.untilReady();
    const listed = await api.list("/apis/discovery.k8s.io/v1/endpointslices");
    assert.equal(source.sink.slices.length, listed.length);
    await createSlice(api, { name: "later", service: "many", addresses: ["10.2.0.9"] });
    await source.until("the later one", (sink) => sink.slices.includes("default/many/later"));
  });

  test("with proxy names, the API server selects the Services, and a Service that changes its name leaves", async () => {
    const { api, kubeconfig } = cluster();
    const label = "service.kubernetes.io/service-proxy-name";
    await createService(api, { name: "changes-proxy" });
    const plain = start({ kubeconfig: kubeconfig("admin"), proxyNames: [""] });
    const owned = start({ kubeconfig: kubeconfig("admin"), proxyNames: ["a", "b"] });
    await Promise.all([plain.untilReady(), owned.untilReady()]);
    assert.ok(plain.sink.services.includes("default/changes-proxy"));
    assert.deepEqual(owned.sink.services, []);
    const path = "/api/v1/namespaces/default/services/changes-proxy";
    await api.patch(path, { metadata: { labels: { [label]: "b" } } });
    await plain.until("it left", (sink) => !sink.services.includes("default/changes-proxy"));
    await owned.until("it came", (sink) => sink.services.includes("default/changes-proxy"));
    await api.patch(path, { metadata: { labels: { [label]: null } } });
    await plain.until("it came back", (sink) => sink.services.includes("default/changes-proxy"));
    await owned.until("it left again", (sink) => sink.services.length === 0);
    await api.delete(path);
  });
});
