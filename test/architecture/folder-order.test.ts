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

test("findImportsAgainstOrder reports an import of a folder to the right, and no other", () => {
  const order = { kit: ["state", "sync"] };
  const edge = (from: string, to: string): Import => ({ file: from, specifier: to, target: to });
  const [state, sync] = ["services/kit/src/state/a.ts", "services/kit/src/sync/b.ts"];
  expect(findImportsAgainstOrder([edge(sync, state)], order)).toEqual([]);
  const problem = `imports ${sync}, but "sync" is above "state"`;
  expect(findImportsAgainstOrder([edge(state, sync)], order)).toEqual([{ file: state, problem }]);
});
