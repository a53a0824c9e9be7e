import { expect, test } from "vitest";
import { findReturnedPromises } from "./returned-promises.ts";
import { readSourceFiles } from "./source-files.ts";

test("no function disposes of a resource that a returned promise still uses", () => {
  const files = readSourceFiles("services/*/src/**/*.ts", "test/**/*.ts", "deploy/**/*.ts", "examples/**/*.ts");
  expect(files.flatMap(findReturnedPromises)).toEqual([]);
});

test("findReturnedPromises finds a promise that is returned before it is awaited, and accepts an awaited one", () => {
  const settle = "async function settle(): Promise<string> {\n  return look();\n}\n";
  const run = (last: string): string => `async function run() {\n  await using backend = await start();\n${last}\n}\n`;
  const linesIn = (text: string) => findReturnedPromises({ file: "a.ts", text }).map((line) => line.split(" ")[0]);
  expect(linesIn(settle + run("  return settle();"))).toEqual(["a.ts:6:"]);
  expect(linesIn(settle + run("  return await settle();"))).toEqual([]);
});
