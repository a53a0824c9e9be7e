import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { afterEach, beforeEach, test } from "vitest";
import { makeDecodeOptions } from "../decode/decode-options.ts";
import { loadInput } from "./load-input.ts";

const decode = makeDecodeOptions();
let folder = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "kpng-load-input-"));
});
afterEach(() => rm(folder, { recursive: true }));

async function nodesOf(inputs: readonly string[], options: Partial<Parameters<typeof loadInput>[1]> = {}) {
  const result = (await loadInput(inputs, { decode, ...options })).read();
  assert.equal(result.kind, "ok", JSON.stringify(result));
  return result.objects.nodes?.map((node) => node.name);
}

async function problemsOf(inputs: readonly string[], options: Partial<Parameters<typeof loadInput>[1]> = {}) {
  const result = (await loadInput(inputs, { decode, ...options })).read();
  return result.kind === "ok" ? [] : result.problems;
}

function node(name: string): string {
  return `nodes: [{name: ${name}}]\n`;
}

test("a folder stands for its yaml, yml and json files by name, without dot files and subfolders", async () => {
  await writeFile(join(folder, "b.yml"), node("b"));
  await writeFile(join(folder, "a.yaml"), node("a"));
  await writeFile(join(folder, "c.json"), '{"nodes":[{"name":"c"}]}');
  await writeFile(join(folder, "README.md"), "no YAML: [");
  await writeFile(join(folder, ".hidden.yaml"), "no YAML: [");
  await mkdir(join(folder, "sub.yaml"));
  await writeFile(join(folder, "sub.yaml", "d.yaml"), node("d"));
  assert.deepEqual(await nodesOf([folder]), ["a", "b", "c"]);
});

test("the linked files of a ConfigMap are read once", async () => {
  await mkdir(join(folder, "..2024_01"));
  await writeFile(join(folder, "..2024_01", "state.yaml"), node("a"));
  await symlink("..2024_01", join(folder, "..data"));
  await symlink("..data/state.yaml", join(folder, "state.yaml"));
  assert.deepEqual(await nodesOf([folder]), ["a"]);
});

test("a file named twice is read once, and files, folders and standard input can be mixed", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, node("a"));
  const standardInput = Readable.from([Buffer.from("nodes: [{na"), Buffer.from("me: z}]")]);
  assert.deepEqual(await nodesOf([file, folder, file, "-"], { standardInput }), ["a", "z"]);
});

test("a missing file is a problem with its name", async () => {
  const file = join(folder, "none.yaml");
  const [problem] = await problemsOf([file]);
  assert.equal(problem?.file, file);
  assert.match(problem?.problem ?? "", /ENOENT/);
});

test("a dangling link in a folder is a problem", async () => {
  await symlink("nowhere", join(folder, "a.yaml"));
  assert.equal((await problemsOf([folder])).length, 1);
});

test("a file that is too large is a problem", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, node("a"));
  const [problem] = await problemsOf([file], { maxBytes: 5 });
  assert.match(problem?.problem ?? "", /larger than 5 bytes/);
});

test("an endless device is a problem and does not exhaust memory", async () => {
  const [problem] = await problemsOf(["/dev/zero"], { maxBytes: 1_000_000 });
  assert.match(problem?.problem ?? "", /larger than 1000000 bytes/);
});

test("a file that is not UTF-8 is a problem", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, Buffer.from([0x61, 0x3a, 0x20, 0xff, 0xfe]));
  assert.deepEqual(await problemsOf([file]), [{ file, problem: "not UTF-8 text" }]);
});

test("a problem in one file invalidates the whole input", async () => {
  await writeFile(join(folder, "a.yaml"), node("a"));
  await writeFile(join(folder, "b.yaml"), "foo: 1\n");
  const problems = await problemsOf([folder]);
  assert.deepEqual(
    problems.map(({ file, line }) => [file, line]),
    [[join(folder, "b.yaml"), 1]],
  );
});
