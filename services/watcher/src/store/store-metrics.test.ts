import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { Store } from "./store.ts";
import { observeStore } from "./store-metrics.ts";

/** Exposed series, without zeros and times. */
async function shown(registry: Registry): Promise<string[]> {
  const lines = (await registry.metrics()).split("\n");
  return lines.filter((line) => !/^#|^$| 0$|timestamp/.test(line)).sort();
}

test("metrics count the objects of the state and its changes by kind", async () => {
  const registry = new Registry();
  const store = new Store();
  observeStore(store, registry);
  expect(await shown(registry)).toEqual([]);
  const ends = slice([endpoint("10.1.0.1"), endpoint("10.1.0.2")]);
  store.replace({ services: [service()], slices: [ends], nodes: [node("n1"), node("n2")] });
  expect(await shown(registry)).toEqual([
    'kpng_store_changes_total{kind="endpoints",verb="put"} 1',
    'kpng_store_changes_total{kind="nodes",verb="put"} 2',
    'kpng_store_changes_total{kind="services",verb="put"} 1',
    'kpng_store_objects{kind="endpoints"} 2',
    'kpng_store_objects{kind="nodes"} 2',
    'kpng_store_objects{kind="services"} 1',
    'kpng_store_objects{kind="slices"} 1',
    "kpng_store_synced 1",
  ]);
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.1")]) }]);
  // The value is unchanged.
  store.apply([{ kind: "put-node", node: node("n1") }]);
  store.apply([{ kind: "delete-node", name: "n2" }]);
  const lines = await shown(registry);
  expect(lines).toContain('kpng_store_changes_total{kind="endpoints",verb="put"} 2');
  expect(lines).toContain('kpng_store_changes_total{kind="nodes",verb="put"} 2');
  expect(lines).toContain('kpng_store_changes_total{kind="nodes",verb="delete"} 1');
  expect(lines).toContain('kpng_store_objects{kind="endpoints"} 1');
});
