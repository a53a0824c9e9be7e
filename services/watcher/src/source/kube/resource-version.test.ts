import assert from "node:assert/strict";
import { test } from "vitest";
import { isOlder } from "./reflector.ts";

const cases = [
  { current: "9", next: "10", isBack: false },
  { current: "10", next: "9", isBack: true },
  { current: "120", next: "119", isBack: true },
  { current: "120", next: "120", isBack: false },
  { current: "18446744073709551614", next: "18446744073709551615", isBack: false },
  { current: "opaque-2", next: "opaque-1", isBack: false },
  { current: "7", next: "", isBack: false },
];

for (const { current, next, isBack } of cases) {
  test(`"${next}" after "${current}" is ${isBack ? "" : "not "}older`, () => {
    assert.equal(isOlder(next, current), isBack);
  });
}
