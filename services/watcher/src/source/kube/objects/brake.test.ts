import assert from "node:assert/strict";
import { test } from "vitest";
import { mustBrake } from "./brake.ts";

const cases = [
  { name: "all objects", current: 100, deleted: 100, isHeldBack: true },
  { name: "nine of ten objects", current: 100, deleted: 90, isHeldBack: true },
  { name: "slightly fewer than nine of ten", current: 100, deleted: 89, isHeldBack: false },
  { name: "all of fewer than ten objects", current: 9, deleted: 9, isHeldBack: false },
  { name: "all of ten objects", current: 10, deleted: 10, isHeldBack: true },
  { name: "nothing, before the first list", current: 0, deleted: 0, isHeldBack: false },
];

for (const { name, current, deleted, isHeldBack } of cases) {
  test(`a list that deletes ${name} is ${isHeldBack ? "held back" : "applied"}`, () => {
    assert.equal(mustBrake(current, deleted), isHeldBack);
  });
}
