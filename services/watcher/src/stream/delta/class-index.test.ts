import { endpoint, service, slice } from "@kpng/source/testing/build.ts";
import { expect, test } from "vitest";
import { toggleDigests } from "../../items/item.ts";
import { serviceStates } from "../../items/service-state.ts";
import { viewTargetIn } from "../../items/view-target.ts";
import { Store } from "../../store/store.ts";
import { classIndex, indexWithPauses } from "./class-index.ts";

const names = Array.from({ length: 300 }, (_, index) => `s${index}`);

test("a change while the index is computed in steps does not make the next one start again", () => {
  const store = new Store();
  store.replace({ services: [], slices: [], nodes: [] });
  const request = { nodeName: "n1", proxyName: "steps", isExtended: true, wantsNode: false };
  const { viewClass } = viewTargetIn(store.snapshot, request);
  const stepsClass = { ...viewClass, proxyName: "steps", key: "steps" };
  store.apply(names.map((name) => ({ kind: "put-service", service: service({ name, proxyName: "steps" }) })));
  store.apply(
    names.map((serviceName, at) => {
      const pods = Array.from({ length: 20 }, (_, pod) => endpoint(`10.${pod}.${at >> 8}.${at & 255}`));
      return { kind: "put-slice", slice: slice(pods, { serviceName }) };
    }),
  );
  const isPaused = (steps: Iterator<unknown>): boolean => steps.next().done !== true;
  const steps = indexWithPauses(store.snapshot, stepsClass);
  expect(isPaused(steps)).toBe(true);
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.9.9.9")], { serviceName: "s7" }) }]);
  const middle = store.snapshot;
  store.apply([{ kind: "put-slice", slice: slice([endpoint("10.9.9.9")], { serviceName: "s8" }) }]);
  // Another subscriber derives the values of the newest snapshot meanwhile.
  classIndex(store.snapshot, viewClass);
  const items = [...serviceStates.at(middle).values()].flatMap((state) => state.sharedItems(stepsClass));
  expect(classIndex(middle, stepsClass).digest).toBe(toggleDigests(0n, items));
  while (isPaused(steps));
  expect(isPaused(indexWithPauses(store.snapshot, stepsClass))).toBe(false);
});

test("a Service may gain more endpoints at once than a call takes arguments", () => {
  const store = new Store();
  store.replace({ services: [service()], slices: [], nodes: [] });
  const request = { nodeName: "n1", proxyName: "", isExtended: false, wantsNode: false };
  const { viewClass } = viewTargetIn(store.snapshot, request);
  const before = classIndex(store.snapshot, viewClass).digest;
  const pods = Array.from({ length: 150_000 }, (_, at) => endpoint(`10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`));
  store.apply([{ kind: "put-slice", slice: slice(pods) }]);
  expect(classIndex(store.snapshot, viewClass).digest).not.toBe(before);
});
