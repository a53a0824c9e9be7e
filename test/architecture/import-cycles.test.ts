import { describe, expect, test } from "vitest";
import { findImportCycles } from "./import-cycles.ts";
import { importsOf, readSourceFiles } from "./source-files.ts";

describe("import cycles", () => {
  const cycles = findImportCycles(readSourceFiles("{services,test,examples}/**/*.ts").flatMap(importsOf));

  test("no file imports itself, directly or through others", () => {
    expect(cycles.map((cycle) => [...cycle, cycle[0]].join(" → ")).join("\n")).toBe("");
  });
});

test("findImportCycles returns the files of a cycle, without those that lead to it", () => {
  const graph = "a>b b>c c>d d>b".split(" ").map((edge) => {
    const [file = "", target = ""] = edge.split(">");
    return { file, specifier: target, target };
  });
  expect(findImportCycles(graph)).toEqual([["b", "c", "d"]]);
});
