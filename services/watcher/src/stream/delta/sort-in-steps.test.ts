import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { sortInSteps } from "./sort-in-steps.ts";

interface Element {
  readonly key: number;
  readonly index: number;
}

const byKey = (a: Element, b: Element): number => a.key - b.key;

test.each([0, 1, 9, 10, 11, 20, 25, 1_000])(
  "sortInSteps sorts %i elements as toSorted does, in steps of ten",
  (count) => {
    const below = makeRandomBelow(makeRandom(count));
    const list = Array.from({ length: count }, (_, index) => ({ key: below(count / 4), index }));
    const steps = sortInSteps(list, byKey, 10, "pause");
    let step = steps.next();
    let pauses = 0;
    for (; step.done !== true; step = steps.next()) pauses += 1;
    expect(step.value).toEqual(list.toSorted(byKey));
    expect(pauses).toBeGreaterThanOrEqual(Math.max(0, Math.ceil(count / 10) - 1));
  },
);
