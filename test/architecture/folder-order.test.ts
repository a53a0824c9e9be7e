import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { findImportsAgainstOrder, folderOrder } from "./folder-order.ts";
import { type Import, importsOf, readSourceFiles } from "./source-files.ts";

describe("imports between the folders of a package go one way", () => {
  const imports = readSourceFiles("services/*/src/**/*.ts").flatMap(importsOf);

  test("every package declares its order", () => {
    expect(Object.keys(folderOrder).sort()).toEqual(readdirSync("services").sort());
  });

  test("a file imports only from folders to the left of its own", () => {
    expect(findImportsAgainstOrder(imports, folderOrder)).toEqual([]);
  });
});

test("findImportsAgainstOrder reports an import of a folder to the right, and no other", () => {
  const order = { kit: ["state", "sync"] };
  const edge = (from: string, to: string): Import => ({ file: from, specifier: to, target: to });
  const [state, sync] = ["services/kit/src/state/a.ts", "services/kit/src/sync/b.ts"];
  expect(findImportsAgainstOrder([edge(sync, state)], order)).toEqual([]);
  const line = `${state}: imports ${sync}, but "sync" is above "state"`;
  expect(findImportsAgainstOrder([edge(state, sync)], order)).toEqual([line]);
});
