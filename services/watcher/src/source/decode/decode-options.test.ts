import assert from "node:assert/strict";
import { expect, test } from "vitest";
import { makeDecodeOptions } from "./decoded.ts";

const table: readonly { glob: string; yes: readonly string[]; no: readonly string[] }[] = [
  { glob: "app", yes: ["app"], no: ["apps", "my-app", ""] },
  { glob: "*", yes: ["", "a", "example.com/a b"], no: [] },
  { glob: "example.com/*", yes: ["example.com/", "example.com/a/b"], no: ["example.org/a", "exampleXcom/a"] },
  { glob: "a?c", yes: ["abc", "a/c"], no: ["ac", "abbc"] },
  { glob: "a.b+(c)^$|", yes: ["a.b+(c)^$|"], no: ["axb+(c)^$|"] },
];

for (const { glob, yes, no } of table) {
  test(`the glob ${glob} matches as in KPNG`, () => {
    const { nodeLabels } = makeDecodeOptions({ nodeLabels: ["other", glob] });
    for (const text of yes) assert.ok(nodeLabels(text), `${glob} must match "${text}"`);
    for (const text of no) assert.ok(!nodeLabels(text), `${glob} must not match "${text}"`);
  });
}

for (const glob of ["a[bc]d", "{a,b}", "a\\"]) {
  test(`the glob ${glob} is rejected`, () => {
    expect(() => makeDecodeOptions({ serviceLabels: [glob] })).toThrow(/\[BAD_OPTION\].*repeat the option/);
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
