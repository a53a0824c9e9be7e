import assert from "node:assert/strict";
import { test } from "vitest";
import { LineSplitter } from "./watch.ts";

const cases = [
  { name: "whole lines", chunks: ["a\nb\n"], lines: ["a", "b"] },
  { name: "a line that arrives in three chunks", chunks: ["on", "", "e\ntw", "o\n"], lines: ["one", "two"] },
  {
    name: "a character split across two chunks",
    chunks: [Buffer.from("ä\n").subarray(0, 1), Buffer.from("ä\n").subarray(1)],
    lines: ["ä"],
  },
  { name: "text with empty lines, dropping them", chunks: ["\n\na\n\n"], lines: ["a"] },
  { name: "text with an unfinished line, buffering it", chunks: ["a\nb"], lines: ["a"] },
];

for (const { name, chunks, lines } of cases) {
  test(`splits ${name}`, () => {
    const splitter = new LineSplitter();
    assert.deepEqual(
      chunks.flatMap((chunk) => splitter.split(Buffer.from(chunk)) ?? ["too long"]),
      lines,
    );
  });
}

test("a line longer than the limit is rejected", () => {
  const splitter = new LineSplitter(8);
  assert.deepEqual(splitter.split(Buffer.from("1234567")), []);
  assert.equal(splitter.split(Buffer.from("89")), undefined);
});
