import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { distinctMatches, filesUnder } from "./documents.ts";
import { renderReferences } from "./reference/references.ts";

const sources = filesUnder("services", ".ts").filter((file) => !/\.test\.ts$|\/testing\/|\/gen\//.test(file));
const references = await renderReferences();

test.each([...references])("%s agrees with the code", (path, wanted) => {
  expect(readFileSync(path, "utf8"), "run `npm run docs` and commit the result").toBe(wanted);
});

test("the reference has each metric that the code registers under a literal name", () => {
  const written = sources.flatMap((file) =>
    distinctMatches(readFileSync(file, "utf8"), /(?:\bname: |[(,]\s*)"((?:kpng|kubeproxy)_\w+)"/g),
  );
  const text = references.get("docs/reference/metrics.md") ?? "";
  const listed = new Set(distinctMatches(text, /^\| `(\w+)`/gm));
  expect(written.length).toBeGreaterThan(50);
  const missing = [...new Set(written)].filter((name) => !listed.has(name));
  expect(missing, "add the code that registers them to test/docs/reference/program-metrics.ts").toEqual([]);
});

test("docs/errors.md has a row for each error code, and for nothing else", () => {
  const unions = sources.map(
    (file) => /(?:type \w+ErrorCode =|readonly code =)([^;]*);/.exec(readFileSync(file, "utf8"))?.[1] ?? "",
  );
  expect(unions.filter((union) => union !== "").length).toBeGreaterThan(4);
  const rows = distinctMatches(readFileSync("docs/errors.md", "utf8"), /^\| `([A-Z_]+)`/gm);
  expect(rows).toEqual(distinctMatches(unions.join(), /"([A-Z_]+)"/g));
});
