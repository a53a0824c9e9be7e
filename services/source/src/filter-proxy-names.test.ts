import { Store } from "@kpng/watcher/store/store.ts";
import { expect, test } from "vitest";
import { filterProxyNames } from "./source.ts";
import { service } from "./testing/build.ts";

test("only Services with a selected proxy name pass, in lists and in changes", () => {
  const store = new Store();
  const sink = filterProxyNames(store, ["", "a"]);
  const names = () => [...store.snapshot.services.values()].map(({ name }) => name).sort();
  const plain = service({ name: "plain" });
  const owned = service({ name: "owned", proxyName: "a" });
  const foreign = service({ name: "foreign", proxyName: "b" });
  sink.replace({ services: [plain, owned, foreign] });
  expect(names()).toEqual(["owned", "plain"]);
  expect(store.missingKinds).toEqual(["slices", "nodes"]);
  sink.apply([
    { kind: "put-service", service: { ...owned, proxyName: "b" } },
    { kind: "put-service", service: { ...foreign, proxyName: "" } },
  ]);
  expect(names()).toEqual(["foreign", "plain"]);
});

test("without a proxy name, everything passes", () => {
  const store = new Store();
  expect(filterProxyNames(store, [])).toBe(store);
});
