import assert from "node:assert/strict";
import { test } from "vitest";
import { wentBack } from "./resource-version.ts";

const cases = [
  { held: "9", next: "10", isBack: false },
  { held: "10", next: "9", isBack: true },
  { held: "120", next: "119", isBack: true },
  { held: "120", next: "120", isBack: false },
  { held: "18446744073709551614", next: "18446744073709551615", isBack: false },
  { held: "opaque-2", next: "opaque-1", isBack: false },
  { held: "7", next: "", isBack: false },
];

for (const { held, next, isBack } of cases) {
  test(`"${next}" after "${held}" is ${isBack ? "" : "not "}older`, () => {
    assert.equal(wentBack(held, next), isBack);
  });
}
