import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { distinctMatches, filesUnder } from "./documents.ts";
import { fillBlocks, markdownTable } from "./reference/fill-blocks.ts";
import { renderReferences } from "./reference/references.ts";

const sources = filesUnder("services", ".ts").filter((file) => !/\.test\.ts$|\/testing\/|\/gen\//.test(file));
const references = await renderReferences();

test.each([...references])("%s agrees with the code", (path, wanted) => {
  expect(readFileSync(path, "utf8"), "run `npm run docs` and commit the result").toBe(wanted);
});

test("the reference has each metric that the code registers under a literal name", () => {
  const written = sources.flatMap((file) =>
    distinctMatches(readFileSync(file, "utf8"), /\bname: "((?:kpng|kubeproxy)_\w+)"/g),
  );
  const text = references.get("docs/reference/metrics.md") ?? "";
  const listed = new Set(distinctMatches(text, /^\| `(\w+)`/gm));
  expect(written.length).toBeGreaterThan(50);
  const missing = [...new Set(written)].filter((name) => !listed.has(name));
  expect(missing, "add the code that registers them to test/docs/reference/program-metrics.ts").toEqual([]);
});

test("docs/errors.md has a row for each error code, and for nothing else", () => {
  const unions = sources
    .filter((file) => file.endsWith("-error.ts"))
    .map((file) => /(?:type \w+Code =|readonly code =)([^;]*);/.exec(readFileSync(file, "utf8"))?.[1] ?? "");
  expect(unions.length).toBeGreaterThan(4);
  const rows = distinctMatches(readFileSync("docs/errors.md", "utf8"), /^\| `([A-Z_]+)`/gm);
  expect(rows).toEqual(distinctMatches(unions.join(), /"([A-Z_]+)"/g));
});

describe("a generated block", () => {
  const document = "a\n<!-- list: x, y -->\nold\n<!-- end -->\nb\n";

  test("is replaced by what its writer returns, and the rest of the document stays", () => {
    expect(fillBlocks(document, { list: (argument) => [`new ${argument}`] })).toBe(
      "a\n<!-- list: x, y -->\nnew x, y\n<!-- end -->\nb\n",
    );
  });

  test("without a writer is an error", () => {
    expect(() => fillBlocks(document, {})).toThrow('no writer for the generated block "list"');
  });

  test("is a table whose cells may contain bars", () => {
    expect(markdownTable(["A", "B"], [["x|y", ""]])).toEqual(["| A | B |", "|---|---|", "| x\\|y | |"]);
  });
});
