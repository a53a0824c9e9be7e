import { describe, expect, test } from "vitest";
import { formatFindings } from "./finding.ts";
import { findReturnedPromises } from "./returned-promises.ts";
import { readSourceFiles } from "./source-files.ts";

test("no function disposes of a resource that a returned promise still uses", () => {
  const files = readSourceFiles("services/*/src/**/*.ts", "test/**/*.ts", "deploy/**/*.ts", "examples/**/*.ts");
  expect(formatFindings(files.flatMap(findReturnedPromises))).toBe("");
});

describe("findReturnedPromises", () => {
  const settle = "async function settle(): Promise<string> {\n  return look();\n}\n";
  const run = (...lines: readonly string[]): string => `async function run() {\n${lines.join("\n")}\n}\n`;
  const using = "  await using backend = await start();";

  test.each([
    { name: "a returned promise", text: settle + run(using, "  return settle();"), lines: [6] },
    { name: "one in a branch", text: settle + run(using, "  if (isOk) return settle();"), lines: [6] },
    {
      name: "one of a function with a type",
      text: `${run(using, "  return look();")}function look(): Promise<string> {\n}\n`,
      lines: [3],
    },
  ])("finds $name", ({ text, lines }) => {
    expect(findReturnedPromises({ file: "a.ts", text }).map(({ line }) => line)).toEqual(lines);
  });

  test.each([
    { name: "an awaited promise", text: settle + run(using, "  return await settle();") },
    {
      name: "a promise that is returned before the resource",
      text: settle + run("  if (isOk) return settle();", using),
    },
    { name: "a promise without a resource", text: settle + run("  return settle();") },
    { name: "a value", text: `${run(using, "  return shape();")}function shape(): string {\n  return "";\n}\n` },
    { name: "a resource of another function", text: run(using) + run("  return run();") },
  ])("accepts $name", ({ text }) => {
    expect(findReturnedPromises({ file: "a.ts", text })).toEqual([]);
  });
});
