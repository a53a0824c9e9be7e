import { expect, test } from "vitest";
import { optionsLast } from "./kpng.ts";

test.each([
  ["--context prod --kubeconfig=x status -o json", "status -o json --context prod --kubeconfig=x"],
  ["--context prod", "--context prod"],
  ["status --context prod", "status --context prod"],
  ["--version", "--version"],
])("options of a cluster before the command are read as after it: %s", (line, expected) => {
  expect(optionsLast(line.split(" ")).join(" ")).toBe(expected);
});
