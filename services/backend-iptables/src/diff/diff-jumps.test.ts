import { expect, test } from "vitest";
import type { ChainId } from "../render/table.ts";
import { diffJumps } from "./diff-jumps.ts";

const jumpRows = [
  { name: "jumps in our order stay as they are", installed: ["-j A", "-j B"], lines: [] },
  {
    name: "missing jumps are inserted at the beginning, in our order",
    installed: [],
    lines: ["-I INPUT 1 -j B", "-I INPUT 1 -j A"],
  },
  {
    name: "if one jump is missing, all are replaced",
    installed: ["-j B"],
    lines: ["-D INPUT -j B", "-I INPUT 1 -j B", "-I INPUT 1 -j A"],
  },
  {
    name: "jumps in the wrong order, or twice, are replaced",
    installed: ["-j B", "-j A", "-j A"],
    lines: ["-D INPUT -j B", "-D INPUT -j A", "-D INPUT -j A", "-I INPUT 1 -j B", "-I INPUT 1 -j A"],
  },
];
test.each(jumpRows)("$name", ({ installed, lines }) => {
  const wanted = new Map<ChainId, readonly string[]>([["filter INPUT", ["-j A", "-j B"]]]);
  const held = new Map<ChainId, readonly string[]>([["filter INPUT", installed]]);
  expect(diffJumps(held, wanted)).toEqual({ filter: lines, nat: [] });
});
