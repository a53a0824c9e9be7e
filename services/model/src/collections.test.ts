import { expect, test } from "vitest";
import { lowerBound } from "./collections.ts";

test.each([
  { values: [], wanted: 5, index: 0 },
  { values: [5], wanted: 5, index: 0 },
  { values: [1, 3, 5, 7], wanted: 0, index: 0 },
  { values: [1, 3, 5, 7], wanted: 4, index: 2 },
  { values: [1, 3, 3, 3], wanted: 3, index: 1 },
  { values: [1, 3, 5, 7], wanted: 8, index: 4 },
])("the lower bound of $wanted in $values is $index", ({ values, wanted, index }) => {
  expect(lowerBound(values.length, (at) => (values[at] ?? 0) < wanted)).toBe(index);
});

test("the search asks for about log2 of the count", () => {
  let asked = 0;
  expect(lowerBound(1_000_000, (at) => ++asked > 0 && at < 777_777)).toBe(777_777);
  expect(asked).toBeLessThanOrEqual(20);
});
