import assert from "node:assert/strict";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { slicesOf } from "@kpng/watcher/store/snapshot.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { Registry } from "prom-client";
import { test } from "vitest";
import { makeDecodeOptions } from "../decode/decoded.ts";
import type { Kind } from "../source.ts";
import { KindReport, makeSourceMetrics } from "./kind-report.ts";
import { type ObjectKind, ObjectTracker, serviceKind, sliceKind } from "./objects.ts";

function setUp<K extends Kind>(kind: ObjectKind<K>) {
  const store = new Store();
  const registry = new Registry();
  const logged: string[] = [];
  const log = createLog("error", (line) => logged.push(String(JSON.parse(line).problem)));
  const health = new Health();
  const report = new KindReport(kind.kind, { metrics: makeSourceMetrics(registry), health, log });
  const tracker = new ObjectTracker(kind, store, report, () => undefined);
  const put = (object: object): void => {
    tracker.apply([{ kind: "put", key: "ns/web", resourceVersion: "1", object }], 0, "1");
  };
  const count = async (skipped: "object" | "part"): Promise<number | undefined> => {
    const series = (await registry.getSingleMetric("kpng_source_invalid_total")?.get())?.values;
    return series?.find(({ labels }) => labels.skipped === skipped)?.value;
  };
  const reason = () => health.parts.get(`objects/${kind.kind}`)?.reason;
  return { store, logged, put, count, reason, report, health };
}

const metadata = { namespace: "ns", name: "web" };

function rawSlice(addresses: readonly string[], labels: object = {}): object {
  return {
    metadata: { ...metadata, labels: { "kubernetes.io/service-name": "web", ...labels } },
    ...{ addressType: "IPv4", ports: [{ name: "", port: 80 }] },
    endpoints: addresses.map((address) => ({ addresses: [address] })),
  };
}

const servedAddresses = ({ snapshot }: Store) =>
  slicesOf(snapshot, "ns/web").flatMap(({ endpoints }) => endpoints.flatMap((one) => one.addresses.v4));

test("an invalid part is skipped, logged once until it changes, and counted, and the rest of the Service follows", async () => {
  const { store, logged, put, count, reason } = setUp(serviceKind(makeDecodeOptions()));
  const externalIPs = (): readonly string[] | undefined => store.snapshot.services.get("ns/web")?.externalIPs?.v4;
  put({ metadata, spec: { externalIPs: ["010.1.2.3", "192.0.2.1"] } });
  assert.deepEqual(externalIPs(), ["192.0.2.1"]);
  put({ metadata, spec: { externalIPs: ["192.0.2.2", "192.0.2.3", "010.1.2.3"] } });
  assert.deepEqual(externalIPs(), ["192.0.2.2", "192.0.2.3"]);
  assert.deepEqual(logged, ['spec.externalIPs[0]: "010.1.2.3" is not an IP address']);
  put({ metadata, spec: { externalIPs: ["010.1.2.4"] } });
  put({ metadata, spec: {} });
  put({ metadata, spec: { externalIPs: ["010.1.2.4"] } });
  assert.equal(logged.length, 3);
  assert.equal(reason(), 'invalid: ns/web (spec.externalIPs[0]: "010.1.2.4" is not an IP address)');
  put({ metadata, spec: {} });
  assert.equal(reason(), "");
  assert.equal(await count("part"), 4);
});

test("an object that is invalid as a whole keeps its last valid value, and is counted", async () => {
  const { store, put, count } = setUp(serviceKind(makeDecodeOptions()));
  put({ metadata, spec: { externalIPs: ["192.0.2.1"] } });
  put({ metadata, spec: { externalIPs: 7 } });
  assert.deepEqual(store.snapshot.services.get("ns/web")?.externalIPs?.v4, ["192.0.2.1"]);
  assert.equal(await count("object"), 1);
});

test("a slice that gains the headless label is deleted, and restored when it loses the label", () => {
  const { store, put } = setUp(sliceKind);
  for (const [labels, served] of [
    [{}, ["10.1.0.1"]],
    [{ "service.kubernetes.io/headless": "false" }, []],
    [{}, ["10.1.0.1"]],
  ] as const) {
    put(rawSlice(["10.1.0.1"], labels));
    assert.deepEqual(servedAddresses(store), served);
  }
});

test("a kind stays unhealthy while deletions wait, even if a watch fails and works again", () => {
  const { report, health } = setUp(serviceKind(makeDecodeOptions()));
  report.listed(1, 0);
  report.deletionsHeld({ currentCount: 5_000, deletedCount: 4_999 }, 31_000);
  report.failed({ verb: "watch", resource: "services", kind: "lost", message: "ECONNRESET" }, 800);
  report.progressed();
  assert.deepEqual(health.parts.get("source/kube/services"), {
    isHealthy: false,
    isReady: true,
    reason: "a list would delete 4999 of 5000 services; listing again to confirm it",
  });
  report.listed(5_000, 0);
  assert.ok(health.isHealthy);
});
