import { expect, test } from "vitest";
import { findDeepNesting } from "./deep-nesting.ts";
import { parseAnyYaml } from "./parse-any-yaml.ts";

test.each([
  { name: "800 KB of brackets", text: "[".repeat(800_000) },
  { name: "800 KB of maps", text: "{a: ".repeat(200_000) },
  { name: "800 KB of list indicators", text: "- ".repeat(400_000) },
  { name: "800 KB of key indicators", text: "? ".repeat(400_000) },
])("$name are a problem with its line, and are not parsed", ({ text }) => {
  expect(findDeepNesting(`kind: List\n${text}`)).toBeLessThan(2_000);
  expect(parseAnyYaml(`kind: List\n${text}`, 1, 1)).toEqual({
    kind: "bad",
    problems: [{ line: 2, column: expect.any(Number), problem: "nested too deeply" }],
  });
});

test.each([
  { name: "many flat lists", text: "[[1], {a: [2]}]\n".repeat(10_000) },
  { name: "a long dashed line", text: `# ${"-".repeat(2_000)}\n` },
  { name: "a long list", text: "- - a\n".repeat(10_000) },
])("$name are accepted", ({ text }) => {
  expect(findDeepNesting(text)).toBeUndefined();
});
