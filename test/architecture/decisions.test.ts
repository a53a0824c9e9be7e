import { describe, expect, test } from "vitest";
import { findStatusProblems } from "./decisions.ts";
import { formatFindings } from "./finding.ts";
import { readSourceFiles } from "./source-files.ts";

test("every decision record has a status line", () => {
  expect(formatFindings(findStatusProblems(readSourceFiles("docs/decisions/*.md")))).toBe("");
});

describe("findStatusProblems", () => {
  const records = (status: string) => [
    { file: "docs/decisions/0001-first.md", text: `# 0001 First\n\n${status}\n\n**Question.** Which?\n` },
    { file: "docs/decisions/0002-second.md", text: "# 0002 Second\n\nStatus: accepted\n\n**Question.** Which?\n" },
  ];

  test.each(["Status: accepted", "Status: superseded by 0002", "Status: superseded by [0002](0002-second.md)"])(
    "accepts %s",
    (status) => {
      expect(findStatusProblems(records(status))).toEqual([]);
    },
  );

  test.each([
    "**Question.** Which?",
    "Status: rejected",
    "Status: superseded",
    "Status: superseded by 0003",
    "Status: superseded by 0001",
  ])("rejects %s", (status) => {
    expect(findStatusProblems(records(status)).map(({ file, line }) => ({ file, line }))).toEqual([
      { file: "docs/decisions/0001-first.md", line: 3 },
    ]);
  });
});
