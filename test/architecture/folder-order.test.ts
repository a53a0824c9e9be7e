import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { formatFindings } from "./finding.ts";
import { findImportsAgainstOrder, folderOrder } from "./folder-order.ts";
import { type Import, importsOf, readSourceFiles } from "./source-files.ts";

describe("imports between the folders of a package go one way", () => {
  const imports = readSourceFiles("services/*/src/**/*.ts").flatMap(importsOf);
  const findings = findImportsAgainstOrder(imports, folderOrder);

  test("every package declares its order", () => {
    expect(Object.keys(folderOrder).sort()).toEqual(readdirSync("services").sort());
  });

  test("a file imports only from folders to the left of its own", () => {
    expect(formatFindings(findings)).toBe("");
  });
});

describe("findImportsAgainstOrder", () => {
  const order = { kit: ["state", "state/digest", "sync"], words: [".", "wire"] };
  const from = (file: string, target: string): Import => ({
    file: `services/${file}`,
    specifier: target,
    target: `services/${target}`,
  });

  test.each([
    { name: "from the right to the left", edge: from("kit/src/sync/a.ts", "kit/src/state/b.ts") },
    { name: "within a folder", edge: from("kit/src/sync/a.ts", "kit/src/sync/b.ts") },
    { name: "from the root", edge: from("kit/src/main.ts", "kit/src/sync/b.ts") },
    { name: "from a root that the row places on the left", edge: from("words/src/wire/a.ts", "words/src/b.ts") },
    { name: "from another package", edge: from("kit/src/state/a.ts", "words/src/wire/b.ts") },
    { name: "from generated code", edge: from("kit/src/state/a.ts", "kit/src/gen/b.ts") },
    { name: "by a test", edge: from("kit/src/state/a.test.ts", "kit/src/sync/b.ts") },
    { name: "by support of tests", edge: from("kit/src/state/testing/a.ts", "kit/src/sync/b.ts") },
  ])("allows imports $name", ({ edge }) => {
    expect(findImportsAgainstOrder([edge], order)).toEqual([]);
  });

  test.each([
    {
      name: "from the left to the right",
      edge: from("kit/src/state/a.ts", "kit/src/sync/b.ts"),
      problem: 'imports services/kit/src/sync/b.ts, but "sync" is above "state"',
    },
    {
      name: "by a folder of a folder inside it",
      edge: from("kit/src/state/a.ts", "kit/src/state/digest/b.ts"),
      problem: 'imports services/kit/src/state/digest/b.ts, but "state/digest" is above "state"',
    },
    {
      name: "by a folder of the root above it",
      edge: from("kit/src/sync/a.ts", "kit/src/b.ts"),
      problem: 'imports services/kit/src/b.ts, but "." is above "sync"',
    },
    {
      name: "by a folder that is not in the row",
      edge: from("kit/src/extra/a.ts", "kit/src/state/b.ts"),
      problem: 'its folder "extra" has no place in the order of kit',
    },
  ])("reports imports $name", ({ edge, problem }) => {
    expect(findImportsAgainstOrder([edge], order)).toEqual([{ file: edge.file, problem }]);
  });

  test("reports a target whose folder is not in the row", () => {
    const edge = from("kit/src/state/a.ts", "kit/src/extra/b.ts");
    const problem = 'its folder "extra" has no place in the order of kit';
    expect(findImportsAgainstOrder([edge], order)).toEqual([{ file: edge.target, problem }]);
  });
});
