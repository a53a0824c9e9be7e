import { expect, test } from "vitest";
import type { Versions } from "../source/source.ts";
import { node, service, slice } from "../testing/build.ts";
import { Store } from "./store.ts";

const kube = (versions: Versions) => ({ source: "kube", receivedAtMs: 0, versions });

function listedStore(): Store {
  const store = new Store();
  store.replace({ services: [service()] }, kube({ services: 10n }));
  store.replace({ slices: [] }, kube({ slices: 11n }));
  store.replace({ nodes: [node("n1")] }, kube({ nodes: 12n }));
  return store;
}

test("the first lists set the versions, also of a kind without objects", () => {
  expect(listedStore().position).toEqual({ source: "kube", epoch: 0n, services: 10n, slices: 11n, nodes: 12n });
});

test("only a change of the kind advances its version", () => {
  const store = listedStore();
  store.apply([{ kind: "put-service", service: service() }], kube({ services: 20n }));
  store.apply([{ kind: "put-slice", slice: slice([]) }], kube({ slices: 21n }));
  expect(store.position).toMatchObject({ services: 10n, slices: 21n });
  store.apply([{ kind: "put-service", service: service({ type: "NodePort" }) }], kube({ services: 22n }));
  expect(store.position).toMatchObject({ services: 22n, slices: 21n });
});

test("versions that go back begin an epoch", () => {
  const store = listedStore();
  store.replace({ nodes: [node("n1"), node("n2")] }, kube({ nodes: 5n }));
  expect(store.position).toMatchObject({ epoch: 1n, services: 10n, nodes: 5n });
});

test("without versions, the position is the revision of the instance", () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [] });
  expect(store.position).toEqual({ source: store.instance, epoch: 0n, services: 1n, slices: 1n, nodes: 1n });
});

test("a relay passes the position of its upstream on, and keeps a later epoch", () => {
  const position = { source: "kube", epoch: 0n, services: 1n, slices: 2n, nodes: 3n };
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] }, { source: "api", receivedAtMs: 0, position });
  expect(store.position).toEqual(position);
  store.adoptEpoch(2n);
  const next = { ...position, services: 9n };
  store.apply([{ kind: "put-service", service: service() }], { source: "api", receivedAtMs: 0, position: next });
  expect(store.position).toEqual({ ...next, epoch: 2n });
});
