import { describe, expect, test } from "vitest";
import { findImportCycles } from "./import-cycles.ts";
import { type Import, importsOf, readSourceFiles } from "./source-files.ts";

describe("import cycles", () => {
  const cycles = findImportCycles(readSourceFiles("{services,test,examples}/**/*.ts").flatMap(importsOf));

  test("no file imports itself, directly or through others", () => {
    expect(cycles.map((cycle) => [...cycle, cycle[0]].join(" → ")).join("\n")).toBe("");
  });
});

describe("findImportCycles", () => {
  const graph = (edges: string): Import[] =>
    edges.split(" ").map((edge) => {
      const [file = "", target = ""] = edge.split(">");
      return { file, specifier: target, target };
    });

  test.each([
    { name: "a chain has none", edges: "a>b b>c a>c", cycles: [] },
    { name: "a file that imports itself is one", edges: "a>b b>b", cycles: [["b"]] },
    { name: "two files that import each other are one", edges: "a>b b>a", cycles: [["a", "b"]] },
    { name: "a cycle does not contain the files that lead to it", edges: "a>b b>c c>d d>b", cycles: [["b", "c", "d"]] },
  ])("$name", ({ edges, cycles }) => {
    expect(findImportCycles(graph(edges))).toEqual(cycles);
  });
});
