import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { elsewhere, readBlocks, whereElse } from "./blocks.ts";

const commands = readBlocks().flatMap(({ path, commands: all }) => all.map((command) => ({ path, command })));

test("the documents have blocks of commands", () => {
  expect(commands.length).toBeGreaterThan(100);
});

test.each(elsewhere)("commands that match $pattern exist, and so does the test that runs them", (one) => {
  expect(commands.some(({ path, command }) => whereElse(path, command) === one)).toBe(true);
  if (one.test !== undefined) expect(existsSync(one.test), one.test).toBe(true);
});
