import assert from "node:assert/strict";
import { appendFile, mkdir, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, test } from "vitest";
import { makeDecodeOptions } from "../decode/decoded.ts";
import type { ClusterObjects } from "../source.ts";
import { type FileSourceOptions, fileSource } from "./file-source.ts";

let folder = "";
let stop = new AbortController();
let running: Promise<void> = Promise.resolve();

beforeEach(() => {
  folder = temporaryFolder();
  stop = new AbortController();
});
afterEach(async () => {
  stop.abort();
  await running.catch(() => undefined);
});

/** A sink whose replacements are taken one by one, in their order. */
class TestSink {
  readonly #arrived: ClusterObjects[] = [];
  #wake: () => void = () => undefined;

  replace(objects: ClusterObjects): undefined {
    this.#arrived.push(objects);
    this.#wake();
  }

  get waitingCount(): number {
    return this.#arrived.length;
  }

  async nextNodes(): Promise<readonly string[]> {
    while (this.#arrived.length === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
    return this.#arrived.shift()?.nodes?.map((node) => node.name) ?? [];
  }
}

function start(inputs: readonly string[], options: Partial<FileSourceOptions> = {}) {
  const sink = new TestSink();
  const health = new Health();
  const metrics = new Registry();
  const lines: string[] = [];
  const log = createLog("debug", (line) => lines.push(line));
  const decode = makeDecodeOptions();
  running = fileSource({ inputs, sink, decode, log, health, metrics, pollMs: 10, debounceMs: 5, ...options }).run(
    stop.signal,
  );
  running.catch(() => undefined);
  const failing = new Promise<void>((resolve) =>
    health.onChange(() => {
      if (!health.isHealthy) resolve();
    }, stop.signal),
  );
  return { sink, health, metrics, lines, failing };
}

function node(name: string): string {
  return `nodes: [{name: ${name}}]\n`;
}

/** Replaces a file by rename. */
async function replace(file: string, text: string): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

/** Starts a source that has read one file with the node "a". */
async function startWithFile() {
  const file = join(folder, "state.yaml");
  await writeFile(file, node("a"));
  const started = start([file]);
  assert.deepEqual(await started.sink.nextNodes(), ["a"]);
  return { file, ...started };
}

test("a file that is written in place or replaced is read again", async () => {
  const { file, sink } = await startWithFile();
  await writeFile(file, node("b"));
  assert.deepEqual(await sink.nextNodes(), ["b"]);
  await replace(file, node("c"));
  assert.deepEqual(await sink.nextNodes(), ["c"]);
});

test("a folder that gains and loses a file is read again", async () => {
  await writeFile(join(folder, "a.yaml"), node("a"));
  const { sink } = start([folder]);
  assert.deepEqual(await sink.nextNodes(), ["a"]);
  await replace(join(folder, "b.yaml"), node("b"));
  assert.deepEqual(await sink.nextNodes(), ["a", "b"]);
  await unlink(join(folder, "a.yaml"));
  assert.deepEqual(await sink.nextNodes(), ["b"]);
});

test("a ConfigMap whose data link changes is read again", async () => {
  await mkdir(join(folder, "..1"));
  await mkdir(join(folder, "..2"));
  await writeFile(join(folder, "..1", "state.yaml"), node("a"));
  await writeFile(join(folder, "..2", "state.yaml"), node("b"));
  await symlink("..1", join(folder, "..data"));
  await symlink("..data/state.yaml", join(folder, "state.yaml"));
  const { sink } = start([join(folder, "state.yaml")]);
  assert.deepEqual(await sink.nextNodes(), ["a"]);
  await symlink("..2", join(folder, "..data_tmp"));
  await rename(join(folder, "..data_tmp"), join(folder, "..data"));
  assert.deepEqual(await sink.nextNodes(), ["b"]);
});

test("an invalid file keeps the last valid state and is reported until it is fixed", async () => {
  const { file, sink, health, lines, failing, metrics } = await startWithFile();
  await replace(file, "nodes:\n- name: a\n  colour: red\n");
  await failing;
  assert.equal(sink.waitingCount, 0);
  assert.ok(health.isReady);
  assert.match(health.parts.get("source/file")?.reason ?? "", /state\.yaml: nodes\[0\]\.colour/);
  assert.ok(lines.some((line) => line.includes("invalid input") && line.includes("state.yaml")));
  await replace(file, node("c"));
  assert.deepEqual(await sink.nextNodes(), ["c"]);
  assert.ok(health.isHealthy);
  assert.match(await metrics.metrics(), /kpng_source_invalid_total\{kind="files",skipped="object"\} 1/);
});

test("a file that is truncated before it is written is not an empty cluster, but one that stays empty is", async () => {
  const { file, sink, lines } = await startWithFile();
  await writeFile(file, "");
  await writeFile(file, node("b"));
  assert.deepEqual(await sink.nextNodes(), ["b"], lines.join(""));
  await writeFile(file, "");
  assert.deepEqual(await sink.nextNodes(), []);
});

test("a file that is truncated and then written for longer than an empty file is ignored is read once it is complete", async () => {
  const file = join(folder, "state.yaml");
  await writeFile(file, node("a"));
  const { sink, lines } = start([file], { debounceMs: 100 });
  assert.deepEqual(await sink.nextNodes(), ["a"]);
  await writeFile(file, "");
  await new Promise((resolve) => setTimeout(resolve, 300));
  await writeFile(file, "nodes: [{name: b}");
  for (const endMs = performance.now() + 1_500; performance.now() < endMs; ) {
    await appendFile(file, " ");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await writeFile(file, node("b"));
  assert.deepEqual(await sink.nextNodes(), ["b"]);
  assert.ok(!lines.some((line) => line.includes("invalid input")), lines.join(""));
});

test("a folder that is recreated before it is filled is not an empty cluster", async () => {
  const inner = join(folder, "inner");
  await mkdir(inner);
  await writeFile(join(inner, "a.yaml"), node("a"));
  const { sink, failing } = start([inner]);
  assert.deepEqual(await sink.nextNodes(), ["a"]);
  await rm(inner, { recursive: true });
  await failing;
  await mkdir(inner);
  await new Promise((resolve) => setTimeout(resolve, 300));
  await writeFile(join(inner, "a.yaml"), node("b"));
  assert.deepEqual(await sink.nextNodes(), ["b"]);
});

test("an invalid file at the start ends the source with the places of the first 20 problems", async () => {
  const file = join(folder, "state.yaml");
  await writeFile(file, `nodes:\n${"- nome: a\n".repeat(30)}`);
  const { sink, health } = start([file, join(folder, "none.yaml")]);
  await assert.rejects(running, (error: Error) => {
    assert.match(error.message, /^\[BAD_INPUT\] invalid input, 61 problems: .*; 41 more problems$/);
    assert.match(error.message, /none\.yaml: cannot be read: ENOENT.*state\.yaml: nodes\[0\]\.nome/);
    return true;
  });
  assert.equal(sink.waitingCount, 0);
  assert.ok(!health.isReady);
});

test("standard input is read once and is part of later states", async () => {
  const file = join(folder, "state.yaml");
  await writeFile(file, node("a"));
  const { sink } = start(["-", file], { standardInput: Readable.from([Buffer.from(node("z"))]) });
  assert.deepEqual(await sink.nextNodes(), ["z", "a"]);
  await replace(file, node("b"));
  assert.deepEqual(await sink.nextNodes(), ["z", "b"]);
});
