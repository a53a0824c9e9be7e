import assert from "node:assert/strict";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { test } from "vitest";
import { Store } from "../../store/store.ts";
import { makeDecodeOptions } from "../decode/decoded.ts";
import type { Kind } from "../source.ts";
import { KindReport, makeSourceMetrics } from "./kind-report.ts";
import { type ObjectKind, ObjectTracker, serviceKind, sliceKind } from "./objects.ts";

function setUp<K extends Kind>(kind: ObjectKind<K>) {
  const store = new Store();
  const registry = new Registry();
  const logged: string[] = [];
  const log = createLog("error", (line) => logged.push(String(JSON.parse(line).problem)));
  const report = new KindReport(kind.kind, { metrics: makeSourceMetrics(registry), health: new Health(), log });
  const tracker = new ObjectTracker(kind, store, report, () => undefined);
  const put = (object: object): void => {
    tracker.apply([{ kind: "put", key: "ns/web", resourceVersion: "1", object }], 0, "1");
  };
  const badParts = async (): Promise<number | undefined> =>
    (await registry.getSingleMetric("kpng_source_bad_parts_total")?.get())?.values[0]?.value;
  return { store, logged, put, badParts };
}

const metadata = { namespace: "ns", name: "web" };

test("an invalid part is skipped, logged once until it changes, and counted, and the rest of the Service follows", async () => {
  const { store, logged, put, badParts } = setUp(serviceKind(makeDecodeOptions()));
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
  assert.equal(await badParts(), 4);
});

test("an endpoint that goes away is removed although another endpoint of the slice is invalid", () => {
  const { store, put } = setUp(sliceKind);
  const slice = (...addresses: readonly string[]) => ({
    metadata: { ...metadata, labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "", port: 80 }],
    endpoints: addresses.map((address) => ({ addresses: [address] })),
  });
  const served = () =>
    store.snapshot.slicesByService
      .get("ns/web")
      ?.flatMap(({ endpoints }) => endpoints.flatMap((one) => one.addresses.v4));
  put(slice("10.1.0.1", "10.1.0.2"));
  put(slice("10.1.0.2", "10.1"));
  assert.deepEqual(served(), ["10.1.0.2"]);
});

test("a slice that gains the headless label is deleted, and restored when it loses the label", () => {
  const { store, put } = setUp(sliceKind);
  const slice = (labels: object) => ({
    metadata: { ...metadata, labels: { "kubernetes.io/service-name": "web", ...labels } },
    addressType: "IPv4",
    ports: [{ name: "", port: 80 }],
    endpoints: [{ addresses: ["10.1.0.1"] }],
  });
  const isServed = (): boolean => store.snapshot.slicesByService.get("ns/web") !== undefined;
  put(slice({}));
  assert.equal(isServed(), true);
  put(slice({ "service.kubernetes.io/headless": "false" }));
  assert.equal(isServed(), false);
  put(slice({}));
  assert.equal(isServed(), true);
});
