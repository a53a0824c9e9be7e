import { describe, expect, test } from "vitest";
import { formatFindings } from "./finding.ts";
import { findLargeFiles, findLargeFolders } from "./sizes.ts";
import { readSourceFiles, type SourceFile } from "./source-files.ts";
import { foldersTooLarge } from "./unconverted.ts";

describe("files and folders stay small", () => {
  const files = readSourceFiles("services/*/src/**/*.ts");

  test("a folder has at most 25 source files", () => {
    const findings = findLargeFolders(files);
    expect(formatFindings(findings.filter(({ file }) => !foldersTooLarge.includes(file)))).toBe("");
    expect(foldersTooLarge.filter((folder) => findings.every(({ file }) => file !== folder))).toEqual([]);
  });

  test("a source file has at most 400 lines", () => {
    expect(formatFindings(findLargeFiles(files))).toBe("");
  });
});

function filesIn(folder: string, count: number, ending = ".ts"): SourceFile[] {
  return Array.from({ length: count }, (_, index) => ({ file: `${folder}/${index}${ending}`, text: "" }));
}

describe("findLargeFolders", () => {
  test("reports a folder with 26 files, and not one with 25", () => {
    const files = [...filesIn("services/kit/src/full", 25), ...filesIn("services/kit/src/large", 26)];
    const problem = "has 26 source files, more than 25";
    expect(findLargeFolders(files)).toEqual([{ file: "services/kit/src/large", problem }]);
  });

  test("counts neither tests nor files of inner folders", () => {
    const inner = ["a", "b"].flatMap((name) => filesIn(`services/kit/src/state/${name}`, 20));
    expect(findLargeFolders([...inner, ...filesIn("services/kit/src/state", 30, ".test.ts")])).toEqual([]);
  });
});

describe("findLargeFiles", () => {
  test.each([
    { file: "services/kit/src/a.ts", lines: 400, found: 0 },
    { file: "services/kit/src/a.ts", lines: 401, found: 1 },
    { file: "services/kit/src/a.test.ts", lines: 401, found: 0 },
  ])("reports $found problems for $lines lines in $file", ({ file, lines, found }) => {
    expect(findLargeFiles([{ file, text: "x\n".repeat(lines) }])).toHaveLength(found);
  });
});
