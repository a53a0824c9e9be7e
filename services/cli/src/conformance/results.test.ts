import { expect, test } from "vitest";
import { formatJUnit, withException } from "./results.ts";

const failed = {
  id: "C1",
  rule: "it asks",
  kind: "failed",
  reason: "no <b>\u001b[31m & no\n\tmore",
  elapsedMs: 12,
} as const;

test("a JUnit report is XML, whatever a backend has logged", () => {
  const text = formatJUnit("protocol", [failed, { ...failed, kind: "passed", reason: "" }]);
  expect(text).toContain('tests="2" failures="1" skipped="0"');
  expect(text).toContain('<failure message="no &#60;b&#62;\uFFFD[31m &#38; no&#10;&#9;more"/>');
});

test("an exception excuses a failure, and must be needed", () => {
  const exceptions = new Map([["C1", "known"]]);
  expect(withException(failed, exceptions)).toMatchObject({ kind: "excepted", reason: "known" });
  expect(withException({ ...failed, kind: "passed" }, exceptions)).toMatchObject({ kind: "failed" });
  expect(withException(failed, new Map())).toBe(failed);
});
