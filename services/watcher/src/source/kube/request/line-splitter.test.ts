import assert from "node:assert/strict";
import { test } from "vitest";
import { LineCutter } from "./line-splitter.ts";

const cases = [
  { name: "whole lines", pieces: ["a\nb\n"], lines: ["a", "b"] },
  { name: "a line in three pieces", pieces: ["on", "", "e\ntw", "o\n"], lines: ["one", "two"] },
  {
    name: "a character cut in two",
    pieces: [Buffer.from("ä\n").subarray(0, 1), Buffer.from("ä\n").subarray(1)],
    lines: ["ä"],
  },
  { name: "empty lines are left out", pieces: ["\n\na\n\n"], lines: ["a"] },
  { name: "an unfinished line is kept back", pieces: ["a\nb"], lines: ["a"] },
];

for (const { name, pieces, lines } of cases) {
  test(`cuts ${name}`, () => {
    const cutter = new LineCutter();
    assert.deepEqual(
      pieces.flatMap((piece) => cutter.cut(Buffer.from(piece)) ?? ["refused"]),
      lines,
    );
  });
}

test("refuses a line longer than its limit", () => {
  const cutter = new LineCutter(8);
  assert.deepEqual(cutter.cut(Buffer.from("1234567")), []);
  assert.equal(cutter.cut(Buffer.from("89")), undefined);
});
