import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { makeKpng } from "../kpng.ts";
import { complete } from "./completion.ts";

const program = makeKpng(new AbortController().signal);

test.each([
  ["", ["kube", "file", "api", "replay", "local", "get", "describe", "explain", "completion"]],
  ["ge", ["get"]],
  ["get ", ["services", "nodes", "rules"]],
  ["file -i get get se", ["services"]],
  ["file --input x to-local to-j", ["to-json"]],
  ["get svc --name", ["--namespace"]],
  ["get services -o ", []],
])("after %j", (line, expected) => {
  const found = complete(line.split(" "), program);
  expect(found).toEqual(expect.arrayContaining(expected));
  if (expected.length <= 1) expect(found).toEqual(expected);
  expect(found).not.toContain("__complete");
});

test("the bash script completes with the words of the command line", () => {
  const command = `
    kpng() { if [ "$1" = completion ]; then ${kpng} completion bash; else ${kpng} "$@"; fi; }
    eval "$(kpng completion bash)"
    COMP_WORDS=(kpng get serv); COMP_CWORD=2; _kpng; echo "\${COMPREPLY[@]}"`;
  expect(execFileSync("bash", ["-c", command], { encoding: "utf8" })).toBe("services\n");
});

const kpng = `"${process.execPath}" services/cli/src/main.ts`;
