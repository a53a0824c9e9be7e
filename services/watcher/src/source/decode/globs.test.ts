import assert from "node:assert/strict";
import { expect, test } from "vitest";
import { makeDecodeOptions } from "./decode-options.ts";
import { compileGlobs } from "./globs.ts";

const table: readonly { glob: string; yes: readonly string[]; no: readonly string[] }[] = [
  { glob: "app", yes: ["app"], no: ["apps", "my-app", ""] },
  { glob: "*", yes: ["", "a", "example.com/a b"], no: [] },
  { glob: "example.com/*", yes: ["example.com/", "example.com/a/b"], no: ["example.org/a", "exampleXcom/a"] },
  { glob: "a?c", yes: ["abc", "a/c"], no: ["ac", "abbc"] },
  { glob: "a[bc]d", yes: ["abd", "acd"], no: ["add", "abcd"] },
  { glob: "a[!bc]d", yes: ["add"], no: ["abd", "ad"] },
  { glob: "v[0-9]", yes: ["v0", "v9"], no: ["va"] },
  { glob: "v[!0-9]", yes: ["va"], no: ["v0"] },
  { glob: "[ab-]", yes: ["a", "b", "-"], no: ["c"] },
  { glob: "{app,tier*}", yes: ["app", "tier", "tiers"], no: ["apps", "app,tier"] },
  { glob: "a{b,c{d,e}}f", yes: ["abf", "acdf", "acef"], no: ["acf"] },
  { glob: "\\*", yes: ["*"], no: ["a", "\\*"] },
  { glob: "a\\{b", yes: ["a{b"], no: ["ab"] },
  { glob: "[\\]]", yes: ["]"], no: ["\\"] },
  { glob: "a,b}c]", yes: ["a,b}c]"], no: ["a"] },
  { glob: "a.b+(c)^$|", yes: ["a.b+(c)^$|"], no: ["axb+(c)^$|"] },
  { glob: "日?", yes: ["日本", "日😀"], no: ["日"] },
];

for (const { glob, yes, no } of table) {
  test(`the glob ${glob} matches as in gobwas/glob`, () => {
    const matches = compileGlobs([glob]);
    for (const text of yes) assert.ok(matches(text), `${glob} must match "${text}"`);
    for (const text of no) assert.ok(!matches(text), `${glob} must not match "${text}"`);
  });
}

test("text matches if any of several globs matches, and an empty list matches nothing", () => {
  assert.ok(compileGlobs(["a", "b"])("b"));
  assert.ok(!compileGlobs([])(""));
});

for (const glob of ["[a", "{a", "a\\", "[]", "[!]", "[a-cx]", "[z-a]"]) {
  test(`the glob ${glob} is rejected`, () => {
    expect(() => compileGlobs([glob])).toThrow(/\[BAD_OPTION\].*is not a glob/);
  });
}

test("by default Nodes keep the labels for host name, zone and region, and Services keep none", () => {
  const options = makeDecodeOptions();
  assert.ok(options.nodeLabels("topology.kubernetes.io/zone"));
  assert.ok(!options.nodeLabels("beta.kubernetes.io/arch"));
  assert.ok(!options.serviceLabels("app"));
  assert.ok(!options.serviceAnnotations("app"));
  assert.ok(!options.nodeAnnotations("app"));
});
