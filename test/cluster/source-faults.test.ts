import assert from "node:assert/strict";
import { once } from "node:events";
import { relay } from "@kpng/laboratory/relay.ts";
import { beforeAll, onTestFinished, test } from "vitest";
import type { Cluster } from "./cluster.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createService, createSlice } from "./objects.ts";
import { portOf } from "./ports.ts";
import { type RecordingSink, sourceStarter } from "./run-source.ts";

/** Starts a relay to the API server, until the end of the test, and writes a kubeconfig with its address. */
async function startRelay({ apiServer, kubeconfig }: Cluster) {
  const network = relay(0, new URL(apiServer.url).port);
  await once(network, "listening");
  onTestFinished(() => void network.close());
  return { network, kubeconfig: kubeconfig("admin", { server: `https://127.0.0.1:${portOf(network)}` }) };
}

const serviceNames = Array.from({ length: 20 }, (_, index) => `web-${String(index).padStart(2, "0")}`);

await describeCluster("the Kubernetes source", { hasControllers: false }, (cluster) => {
  const start = sourceStarter();

  beforeAll(async () => {
    const { api } = cluster();
    for (const [index, name] of serviceNames.entries()) {
      await createService(api, { name });
      await createSlice(api, { name, service: name, addresses: [`10.3.0.${index + 1}`] });
    }
  });

  test("restarted with its history compacted (410): the source goes from the old to the new state in one step", async () => {
    const { api, apiServer, etcd } = cluster();
    const { network, kubeconfig } = await startRelay(cluster());
    const source = start({ kubeconfig, timing: { pageSize: 5 } });
    await source.untilReady();
    await createService(api, { name: "removed" });
    await source.until("the old state", (sink) => sink.services.includes("default/removed"));
    source.sink.rule = (sink) => {
      const isOld = sink.services.includes("default/removed");
      const isNew = sink.services.includes("default/added");
      return isOld === isNew ? `between the states: ${sink.services}` : keepsServices(serviceNames)(sink);
    };
    network.mute(true);
    await api.delete("/api/v1/namespaces/default/services/removed");
    await createService(api, { name: "added" });
    await apiServer.kill();
    await etcd.compact();
    await apiServer.start();
    network.breakAll();
    network.mute(false);
    await source.until("the new state", (sink) => sink.services.includes("default/added"));
    assert.ok((await source.metric("kpng_source_relists_total", { reason: "expired" })) > 0);
    assert.ok(source.hasLogged("watch history expired at the API server, listing again", /410/));
    assert.deepEqual(source.sink.violations, []);
  });

  // The last test of the file, because it deletes the cluster's data.
  test("restarted with an empty etcd: the source keeps its state until a later list confirms the empty one", async () => {
    const { api, apiServer, etcd, kubeconfig } = cluster();
    // Long enough for what happens before the list that confirms, on a busy machine.
    const confirmMs = 8_000;
    const source = start({ kubeconfig: kubeconfig("admin"), timing: { confirmMs } });
    await source.untilReady();
    source.sink.rule = keepsServices(serviceNames);
    await apiServer.kill();
    await etcd.empty();
    await apiServer.start();
    await source.untilFailing("services", /^a list would delete \d+ of \d+ services; listing again/, 20_000);
    assert.ok((await source.metric("kpng_source_relists_total", { reason: "went-back" })) > 0);
    assert.ok((await source.metric("kpng_source_lists_total", { result: "braked" })) > 0);
    await createService(api, { name: "new" });
    await source.until("the new Service is not held", (sink) => sink.services.includes("default/new"));
    assert.deepEqual(source.sink.violations, []);
    source.sink.rule = () => undefined;
    await source.until(
      "the later list has replaced the state",
      (sink) => sink.services.join() === "default/kubernetes,default/new",
    );
    await source.untilHealthy();
  });
});

/** Returns the rule that these Services always exist. */
function keepsServices(names: readonly string[]): (sink: RecordingSink) => string | undefined {
  return (sink) => {
    const missing = names.filter((name) => !sink.services.includes(`default/${name}`));
    return missing.length === 0 ? undefined : `Services are missing: ${missing}`;
  };
}
