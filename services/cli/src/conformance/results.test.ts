import { expect, test } from "vitest";
import { withException } from "./results.ts";

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
