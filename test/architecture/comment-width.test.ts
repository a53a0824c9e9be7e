import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { findWideComments } from "./comment-width.ts";
import { formatFindings } from "./finding.ts";
import { readProse } from "./prose.ts";
import { foldersNotRewritten } from "./unconverted.ts";

test("comments are at most 120 columns wide", () => {
  const findings = readProse().flatMap(findWideComments);
  expect(formatFindings(findings.filter(({ file }) => !foldersNotRewritten.includes(dirname(file))))).toBe("");
});

describe("findWideComments", () => {
  const fill = (start: string, length: number): string => start.padEnd(length, "x");

  test.each([
    { name: "a line comment", line: fill("// ", 121) },
    { name: "a docstring of one line", line: fill("  /** ", 121) },
    { name: "a line inside a docstring", line: fill("   * ", 121) },
    { name: "a comment after code", line: fill("const a = 1; // ", 121) },
    { name: "a comment of YAML", file: "a.yaml", line: fill("# ", 121) },
  ])("reports $name of 121 columns", ({ file = "a.ts", line }) => {
    const problem = "the comment has 121 columns, more than 120";
    expect(findWideComments({ file, text: `\n${line}\n` })).toEqual([{ file, line: 2, problem }]);
  });

  test.each([
    { name: "a comment of 120 columns", line: fill("// ", 120) },
    { name: "code", line: fill("const a = ", 130) },
    { name: "a comment that ends in a link", line: fill("// https://example.com/", 130) },
    { name: "a document", file: "a.md", line: fill("# ", 130) },
  ])("accepts $name", ({ file = "a.ts", line }) => {
    expect(findWideComments({ file, text: line })).toEqual([]);
  });
});
