import { expect, test } from "vitest";
import { serviceStates } from "../../items/service-state.ts";
import { viewClassOf } from "../../items/view-target.ts";
import { Store } from "../../store/store.ts";
import { endpoint, node, service, slice } from "../../testing/build.ts";
import { perClass } from "./class-values.ts";

const put = (store: Store, address: string): void =>
  store.apply([{ kind: "put-slice", slice: slice([endpoint(address, { hintedZones: ["z0"] })]) }]);

test("a node that keeps changing its zone neither makes changes more expensive nor keeps memory", () => {
  let changes = 0;
  const values = perClass(
    () => 0,
    (value) => {
      changes += 1;
      return value + 1;
    },
  );
  const store = new Store();
  store.replace({ services: [service({ proxyName: "zones" })], slices: [], nodes: [node("n0", { zone: "z0" })] });
  put(store, "10.0.0.1");
  const lists = new Set<unknown>();
  for (let move = 0; move < 100; move += 1) {
    const zone = `moved-${move}`;
    store.apply([{ kind: "put-node", node: node("n1", { zone }) }]);
    const viewClass = viewClassOf({ isExtended: true, proxyName: "zones" }, zone);
    values(store.snapshot, viewClass);
    lists.add(serviceStates(store.snapshot).get("ns/web")?.sharedItems(viewClass).items);
  }
  // No hint names any of these zones.
  expect(lists.size).toBe(1);
  changes = 0;
  put(store, "10.0.0.2");
  values(store.snapshot, viewClassOf({ isExtended: true, proxyName: "zones" }, "z0"));
  expect(changes).toBeLessThan(4);
});
