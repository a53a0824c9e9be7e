import { makePick, makeRandom } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { Store } from "../store/store.ts";
import { draining, endpoint, node, ready, service, slice } from "../testing/build.ts";
import { serviceOverlay } from "./overlay.ts";
import { changedOwners, ServiceState, serviceStates } from "./service-state.ts";
import { viewTargetIn } from "./view-target.ts";

const nodes = ["n0", "n1", "n2", "n3"];
const zones = ["", "z1", "z2"];

/** A slice of a Service with many; sometimes another slice has the same address. */
function randomSlice(random: () => number, hasHints: boolean) {
  const pick = makePick(random);
  const number = Math.floor(random() * 20);
  const endpoints = Array.from({ length: pick(0, 1, 3) }, (_, index) =>
    endpoint(`10.0.${random() < 0.03 ? 99 : number}.${index}`, {
      nodeName: pick(...nodes),
      podName: pick(`p${number}-${index}`, `q${number}-${index}`),
      conditions: pick(ready, ready, ready, draining),
      hintedZones: hasHints ? pick([], ["z1"], ["z1"], ["z2"]) : [],
      hintedNodes: hasHints ? pick([], [], ["n1"]) : [],
    }),
  );
  return slice(endpoints, { name: `s${number}`, serviceName: "web" });
}

test.each([
  { hints: "no hints", hasHints: false },
  { hints: "hints", hasHints: true },
])("the items of a Service, $hints, do not depend on its earlier states", ({ hasHints }) => {
  for (let seed = 1; seed <= 6; seed += 1) {
    const random = makeRandom(seed);
    const pick = makePick(random);
    const policy = { internalTrafficPolicy: pick("Cluster", "Local"), externalTrafficPolicy: pick("Cluster", "Local") };
    const web = service({ name: "web", ...(policy as object) });
    const store = new Store();
    store.replace({
      services: [web],
      slices: [],
      nodes: nodes.map((name, at) => node(name, { zone: zones[at % 3] ?? "" })),
    });
    let before = store.snapshot;
    for (let step = 0; step < 150; step += 1) {
      store.apply([{ kind: "put-slice", slice: randomSlice(random, hasHints) }]);
      const snapshot = store.snapshot;
      const [old, state] = [before, snapshot].map((one) => serviceStates.at(one).get("ns/web"));
      if (state === undefined) throw new Error("no Service");
      const fresh = new ServiceState(state.service, state.slices);
      for (const zone of zones) {
        const viewClass = { isExtended: true, zone };
        expect(state.sharedItems(viewClass), `seed ${seed}, step ${step}`).toEqual(fresh.sharedItems(viewClass));
      }
      for (const nodeName of nodes) {
        const request = { nodeName, proxyName: "", isExtended: true, wantsNode: false };
        const target = viewTargetIn(snapshot, request);
        const [{ removed, added }, now] = [before, snapshot].map((one) =>
          serviceOverlay(one, "ns/web", target, true),
        ) as [ReturnType<typeof serviceOverlay>, ReturnType<typeof serviceOverlay>];
        const owners = new Set(changedOwners(old, state, target.viewClass));
        if (owners.has(nodeName)) continue;
        const context = `seed ${seed}, step ${step}, ${nodeName}`;
        expect(now.added, context).toEqual(added);
        expect(now.removed, context).toEqual(removed);
      }
      before = snapshot;
    }
  }
});
