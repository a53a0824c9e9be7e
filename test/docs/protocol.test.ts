import { existsSync, readFileSync } from "node:fs";
import { protocolCases } from "@kpng/cli/conformance/protocol-cases.ts";
import { expect, test } from "vitest";

const rows = readFileSync("docs/protocol.md", "utf8")
  .split("\n")
  .map((line) => line.split(" | ").map((cell) => cell.replaceAll(/^\| | \|$/g, "").trim()));

test("each case of kpng conformance belongs to a rule of docs/protocol.md, and each rule names its cases", () => {
  const expand = (text: string): readonly string[] => {
    const [, rule = "", first = "", last = ""] = /^(C\d+)([a-z])–C\d+([a-z])$/.exec(text) ?? [];
    if (rule === "") return text.split(", ");
    const letters = "abcdefgh";
    return [...letters.slice(letters.indexOf(first), letters.indexOf(last) + 1)].map((letter) => `${rule}${letter}`);
  };
  const named = rows.filter(([rule = ""]) => /^C\d+$/.test(rule)).flatMap((cells) => expand(cells.at(-1) ?? ""));
  expect(named).toEqual(protocolCases.map(({ id }) => id));
});

test("the tests of a server's rules exist", () => {
  const paths = rows
    .filter(([rule = ""]) => /^S\d+$/.test(rule))
    .map((cells) => (cells.at(-1) ?? "").replaceAll("`", ""))
    .filter((path) => path !== "the same");
  expect(paths.length).toBeGreaterThan(5);
  expect(paths.filter((path) => !existsSync(path))).toEqual([]);
});
