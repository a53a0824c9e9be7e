import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, test } from "vitest";
import { makeDecodeOptions } from "../decode/decode-options.ts";
import { loadInput } from "./load-input.ts";

const decode = makeDecodeOptions();
let folder = "";
let pipe = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "kpng-streams-"));
  pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
});
afterEach(() => rm(folder, { recursive: true }));

test("a pipe is read when its writer opens it, and only once", async () => {
  const streams = new Map();
  const reading = loadInput([pipe], { decode, streams });
  await writeFile(pipe, "nodes: [{name: a}]\n");
  for (const loaded of [await reading, await loadInput([pipe], { decode, streams })]) {
    const result = loaded.read();
    assert.deepEqual(result.kind === "ok" && result.objects.nodes?.map((node) => node.name), ["a"]);
  }
});

for (const [name, open] of [
  ["a pipe without a writer", () => ({ inputs: [pipe] })],
  ["standard input that stays open", () => ({ inputs: ["-"], standardInput: new PassThrough() })],
] as const) {
  test(`${name} does not delay the end after the signal aborts`, async () => {
    const stop = new AbortController();
    const reading = loadInput(open().inputs, { decode, signal: stop.signal, ...open() });
    stop.abort();
    assert.equal((await reading).read().kind, "bad");
  });
}
