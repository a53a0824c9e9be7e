import assert from "node:assert/strict";
import { test } from "vitest";
import { mustBrake } from "./brake.ts";

const cases = [
  { name: "everything goes", held: 100, deleted: 100, brakes: true },
  { name: "nine of ten go", held: 100, deleted: 90, brakes: true },
  { name: "a little less goes", held: 100, deleted: 89, brakes: false },
  { name: "all of a few go", held: 9, deleted: 9, brakes: false },
  { name: "all of ten go", held: 10, deleted: 10, brakes: true },
  { name: "nothing is held yet", held: 0, deleted: 0, brakes: false },
];

for (const { name, held, deleted, brakes } of cases) {
  test(`${brakes ? "brakes" : "goes on"} when ${name}`, () => {
    assert.equal(mustBrake(held, deleted), brakes);
  });
}
