import { expect, test } from "vitest";
import { readReport, type TestResult } from "./report.ts";
import { selectTests } from "./selection.ts";
import { formatTable } from "./table.ts";

/** Returns a test in Ginkgo's report. */
function spec(name: string, state: string, message = ""): object {
  return {
    ContainerHierarchyTexts: ["[sig-network] Services"],
    LeafNodeType: "It",
    LeafNodeText: name,
    State: state,
    RunTime: 2_000_000_000,
    ...(message === "" ? {} : { Failure: { Message: message } }),
  };
}

function read(...specs: readonly object[]): readonly TestResult[] {
  const setUp = {
    ContainerHierarchyTexts: null,
    LeafNodeType: "SynchronizedBeforeSuite",
    LeafNodeText: "",
    State: "passed",
  };
  return readReport(JSON.stringify([{ SpecReports: [setUp, ...specs] }]), selectTests(undefined));
}

test.each([
  { state: "passed", outcome: { kind: "passed" } },
  { state: "failed", message: "no answer\nmore", outcome: { kind: "failed", message: "no answer" } },
  { state: "timedout", outcome: { kind: "failed", message: "timedout" } },
  { state: "panicked", message: "nil", outcome: { kind: "failed", message: "nil" } },
  { state: "interrupted", outcome: { kind: "failed", message: "interrupted" } },
  { state: "skipped", message: "needs 3 nodes", outcome: { kind: "skipped", reason: "needs 3 nodes" } },
])("a test that ended as $state is $outcome.kind", ({ state, message, outcome }) => {
  expect(read(spec("should work", state, message))).toEqual([
    { name: "Services should work", outcome, durationMs: 2_000 },
  ]);
});

test("an excluded test is skipped with the reason of its exclusion", () => {
  const [result] = read(spec("should work over SCTP", "skipped"));
  expect(result?.outcome).toEqual({ kind: "skipped", reason: expect.stringContaining("SCTP") });
});

test("tests out of focus are not in the results", () => {
  const other = { ...spec("should resolve", "skipped"), ContainerHierarchyTexts: ["[sig-network] DNS"] };
  expect(read(other, spec("should work", "passed"))).toHaveLength(1);
});

test("text that is no report is an error", () => {
  expect(() => readReport("{", selectTests(undefined))).toThrow();
});

test("the table has a row for each test that a proxy ran, a sum, the failures, and reasons for tests that none ran", () => {
  const text = formatTable([
    { title: "a", results: read(spec("one", "passed"), spec("two", "failed", "reset"), spec("sctp", "skipped")) },
    { title: "b", results: read(spec("one", "passed"), spec("sctp", "skipped")) },
  ]);
  expect(text).toBe(
    [
      "| Test | a | b |",
      "| --- | --- | --- |",
      "| Services one | passed | passed |",
      "| Services two | **failed** | – |",
      "| **all** | **1 passed, 1 failed, 1 skipped** | **1 passed, 0 failed, 1 skipped** |",
      "",
      "Failed:",
      "",
      "- a: Services two: reset",
      "",
      "Not run by any proxy:",
      "",
      "- 1: SCTP: the kernel of the test machine lacks it",
      "",
    ].join("\n"),
  );
});
