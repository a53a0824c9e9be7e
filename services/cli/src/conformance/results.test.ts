import { expect, test, vi } from "vitest";
import { formatJUnit, Results, withException } from "./results.ts";

const failed = {
  id: "C1",
  rule: "it asks",
  kind: "failed",
  reason: "it asks for another node",
  elapsedMs: 12,
} as const;

test("an exception excuses a failure, and must be needed", () => {
  const exceptions = new Map([["C1", "known"]]);
  expect(withException(failed, exceptions)).toMatchObject({ kind: "excepted", reason: "known" });
  expect(withException({ ...failed, kind: "passed" }, exceptions)).toMatchObject({ kind: "failed" });
  expect(withException(failed, new Map())).toBe(failed);
});

test("a run that ended before its last case is a failure, also in JSON", () => {
  const write = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  const { exitCode } = process;
  const results = new Results("protocol", { output: "json" });
  results.add({ ...failed, kind: "passed", reason: "" });
  results.finish(26);
  const last = JSON.parse(String(write.mock.lastCall?.[0]));
  write.mockRestore();
  expect({ ...last, code: process.exitCode }).toMatchObject({
    ...{ kind: "failed", reason: "ended after 1 of 26 cases", code: 1 },
  });
  process.exitCode = exitCode;
});

test("a JUnit report is XML, whatever a backend has logged", () => {
  const reason = "no <b>\u001b[31m & no\n\tmore";
  const text = formatJUnit("protocol", [
    { ...failed, reason },
    { ...failed, kind: "passed", reason: "" },
  ]);
  expect(text).toContain('tests="2" failures="1" skipped="0"');
  expect(text).toContain('<failure message="no &#60;b&#62;\uFFFD[31m &#38; no&#10;&#9;more"/>');
});
