import { expect, test } from "vitest";
import { makeDecodeOptions } from "./decoded.ts";

test.each([
  { glob: "app", yes: ["app"], no: ["apps", "my-app", ""] },
  { glob: "*", yes: ["", "a", "example.com/a b"], no: [] },
  { glob: "example.com/*", yes: ["example.com/", "example.com/a/b"], no: ["example.org/a", "exampleXcom/a"] },
  { glob: "a?c", yes: ["abc", "a/c"], no: ["ac", "abbc"] },
  { glob: "a.b+(c)^$|", yes: ["a.b+(c)^$|"], no: ["axb+(c)^$|"] },
])("the glob $glob matches as in KPNG", ({ glob, yes, no }) => {
  const { nodeLabels } = makeDecodeOptions({ nodeLabels: ["other", glob] });
  expect([...yes, ...no].filter(nodeLabels)).toEqual(yes);
});

test.each(["a[bc]d", "{a,b}", "a\\"])("the glob %s is rejected", (glob) => {
  expect(() => makeDecodeOptions({ serviceLabels: [glob] })).toThrow("[BAD_OPTION]");
});
