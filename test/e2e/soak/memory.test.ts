import { expect, test } from "vitest";
import { growthOf } from "./memory.ts";

const atMs = Array.from({ length: 100 }, (_, index) => index * 5_000);
const curve = (mebibytes: (index: number) => number) => ({
  name: "p",
  atMs,
  mebibytes: atMs.map((_, i) => mebibytes(i)),
});

test("memory that rises at the start of a process only is flat", () => {
  expect(growthOf(curve((index) => Math.min(80, 40 + 4 * index)))).toMatchObject({ early: 80, late: 80, isFlat: true });
});

test("memory that always rises is not flat", () => {
  expect(growthOf(curve((index) => 80 + index))).toMatchObject({ isFlat: false });
});

test("garbage between two collections does not count", () => {
  expect(growthOf(curve((index) => 80 + (index % 7) * 3))).toMatchObject({ isFlat: true });
});

test("the memory of a process that lived for less than two minutes is not judged", () => {
  expect(growthOf({ name: "p", atMs: [0, 100_000], mebibytes: [80, 500] })).toBe(undefined);
});
