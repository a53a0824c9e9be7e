import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import type { Versions } from "@kpng/source/source.ts";
import { node, service, slice } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { observeCurrency } from "./currency.ts";
import { Store } from "./store.ts";

const kube = (versions: Versions) => ({ source: "kube", receivedAtMs: 0, versions, clusterId: "c1" });

function listedStore(): Store {
  const store = new Store();
  store.replace({ services: [service()] }, kube({ services: 10n }));
  store.replace({ slices: [] }, kube({ slices: 11n }));
  store.replace({ nodes: [node("n1")] }, kube({ nodes: 12n }));
  return store;
}

test("the first lists set the versions, also of a kind without objects", () => {
  const versions = { services: 10n, slices: 11n, nodes: 12n };
  expect(listedStore().snapshot.position).toEqual({ source: "kube:c1", ...versions, current: versions });
});

test("only a change of the kind advances its version", () => {
  const store = listedStore();
  store.apply([{ kind: "put-service", service: service() }], kube({ services: 20n }));
  store.apply([{ kind: "put-slice", slice: slice([]) }], kube({ slices: 21n }));
  expect(store.snapshot.position).toMatchObject({ services: 10n, slices: 21n });
  store.apply([{ kind: "put-service", service: service({ type: "NodePort" }) }], kube({ services: 22n }));
  expect(store.snapshot.position).toMatchObject({ services: 22n, slices: 21n });
});

test("events, lists and bookmarks advance the versions up to which the state is current, from the next revision on", () => {
  const store = listedStore();
  store.replace({ services: [service()] }, kube({ services: 20n }));
  store.currency.confirm({ nodes: 30n });
  store.apply([{ kind: "put-slice", slice: slice([]) }], kube({ slices: 25n }));
  expect(store.snapshot.position).toEqual({
    source: "kube:c1",
    ...{ services: 10n, slices: 25n, nodes: 12n },
    current: { services: 20n, slices: 25n, nodes: 30n },
  });
});

test("versions that go back are taken over", () => {
  const store = listedStore();
  store.replace({ nodes: [node("n1"), node("n2")] }, kube({ nodes: 5n }));
  expect(store.snapshot.position).toMatchObject({ services: 10n, nodes: 5n, current: { services: 10n, nodes: 5n } });
});

test("health shows why the state is stale now, and the log when it became so", () => {
  const store = new Store();
  const [health, lines] = [new Health(), [] as string[]];
  observeCurrency(store, { log: createLog("error", (line) => lines.push(line)), health, metrics: new Registry() });
  for (const reason of ["the server does not answer", "the server is listed again"]) store.currency.markStale(reason);
  const reason = "the state may be out of date: the server is listed again";
  expect(health.parts.get("source/current")).toMatchObject({ isHealthy: false, reason });
  expect(lines).toHaveLength(1);
  store.currency.markFresh();
  expect(health.parts.get("source/current")).toMatchObject({ isHealthy: true, reason: "" });
});
