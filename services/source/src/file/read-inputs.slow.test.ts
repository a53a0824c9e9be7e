import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { beforeEach, expect, test } from "vitest";
import { makeDecodeOptions } from "../decode/decoded.ts";
import { type InputFilesOptions, loadInput } from "./input-files.ts";
import { readInput } from "./read-inputs.ts";
import { input, manifests, read, readGood, state, toFile } from "./testing/texts.ts";

const decode = makeDecodeOptions();
let folder = "";

beforeEach(() => {
  folder = temporaryFolder();
});

async function load(inputs: readonly string[], options: InputFilesOptions = {}) {
  const result = readInput(await loadInput(inputs, options), decode);
  return result.kind === "ok" ? (result.objects.nodes ?? []).map(({ name }) => name) : result.problems;
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
  assert.deepEqual(await load([folder]), ["a", "b", "c"]);
});

test("a file named twice is read once, and files, folders and standard input can be mixed", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, node("a"));
  const standardInput = Readable.from([Buffer.from("nodes: [{na"), Buffer.from("me: z}]")]);
  assert.deepEqual(await load([file, folder, file, "-"], { standardInput }), ["a", "z"]);
});

test("a dangling link in a folder is a problem, and invalidates the whole input", async () => {
  await writeFile(join(folder, "a.yaml"), node("a"));
  await symlink("nowhere", join(folder, "b.yaml"));
  const at = join(folder, "b.yaml");
  assert.deepEqual(await load([folder]), [
    { at, problem: `cannot be read: ENOENT: no such file or directory, stat '${at}'` },
  ]);
});

test("an endless device is a problem and does not exhaust memory", async () => {
  const problem = "cannot be read: larger than 1000000 bytes";
  assert.deepEqual(await load(["/dev/zero"], { maxBytes: 1_000_000 }), [{ at: "/dev/zero", problem }]);
});

test("a file that is not UTF-8 is a problem", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, Buffer.from([0x61, 0x3a, 0x20, 0xff, 0xfe]));
  assert.deepEqual(await load([file]), [{ at: file, problem: "not UTF-8 text" }]);
});

test("a pipe is read when its writer opens it, and only once", async () => {
  const streams = new Map();
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  const reading = load([pipe], { streams });
  await writeFile(pipe, "nodes: [{name: a}]\n");
  assert.deepEqual(await reading, ["a"]);
  assert.deepEqual(await load([pipe], { streams }), ["a"]);
});

test("manifests: kinds that a proxy needs are read, and others are counted in one note per kind", () => {
  const { services, slices, nodes, notes } = readGood(manifests);
  assert.deepEqual([services.length, slices.length, nodes.length], [1, 1, 1]);
  assert.deepEqual(
    notes.map((note) => note.problem),
    ["ignored 2 of kind Deployment (apps/v1)", "ignored 1 of kind Service (serving.knative.dev/v1)"],
  );
});

test("manifests: lists are read, also in JSON, and items of a ServiceList need no kind", () => {
  const items = [{ metadata: { name: "web" } }];
  const { services, nodes } = readGood(
    JSON.stringify({ apiVersion: "v1", kind: "ServiceList", items }),
    "kind: List\napiVersion: v1\nitems:\n- {kind: Node, apiVersion: v1, metadata: {name: n1}}\n- {kind: NodeList, items: [{metadata: {name: n2}}]}\n",
    "kind: EndpointSliceList\nitems: null\n",
  );
  assert.deepEqual([services.map((service) => service.name), nodes.map((node) => node.name)], [["web"], ["n1", "n2"]]);
});

test("empty files, empty documents and comments are an empty cluster", () => {
  const { services, slices, nodes } = readGood("", "---\n---\n# x\n", "{}");
  assert.deepEqual([services, slices, nodes], [[], [], []]);
});

test.each<{ name: string; texts: readonly string[]; at: readonly string[] }>([
  {
    name: "unknown keys, also in capitals",
    texts: ["services:\n- service: {name: a, clusterip: x}\n", "services:\n- Service: {}\n"],
    at: ["a.yaml: services[0].service.clusterip", "b.yaml: services[0].service", "b.yaml: services[0].Service"],
  },
  { name: "neither manifest nor state file", texts: ["foo: 1\n"], at: ["a.yaml"] },
  {
    name: "an invalid field deep in a list",
    texts: ["kind: List\nitems: [{kind: Service, metadata: {name: a}, spec: {externalIPs: [10.0.0]}}]\n"],
    at: ["a.yaml: items[0].spec.externalIPs[0]"],
  },
  {
    name: "an address of the wrong family",
    texts: [state("{endpoint: {ips: {v6: [10.1.0.1]}}}")],
    at: ["a.yaml: services[0].endpoints[0].endpoint.ips.v6[0]"],
  },
  {
    name: "a Service defined in two files",
    texts: ["kind: Service\nmetadata: {name: a}\n", "services:\n- service: {name: b}\n- service: {name: a}\n"],
    at: ["b.yaml: services[1].service"],
  },
  { name: "a Node defined twice", texts: ["nodes:\n- name: a\n- name: a\n"], at: ["a.yaml: nodes[1]"] },
  {
    name: "objects of every kind defined twice",
    texts: [manifests, manifests],
    at: ["b.yaml, document 1", "b.yaml, document 2", "b.yaml, document 3"],
  },
  {
    name: "a slice under two Services",
    texts: [manifests, manifests.split("---\n")[1]?.replace("service-name: web", "service-name: b") ?? ""],
    at: ["b.yaml"],
  },
])("invalid input: $name is a problem at its place", ({ texts, at }) => {
  const result = read(...texts);
  const lines = result.kind === "bad" ? result.problems.map((each) => `${each.at}: ${each.problem}`) : [];
  expect(lines).toEqual(at.map((place) => expect.stringContaining(place)));
});

test("a randomly mutated file is read or rejected, and never throws", () => {
  const random = makeRandomBelow(makeRandom(7));
  const more = ["\n---\n", "\n...\n", "&a ", "*a", "null", "  ", "!!binary ", "<<: ", "9e99"];
  const pieces = [..." \n:-#'\"|>[]{}&*!?,%@`~0a.\t\0\r\ufeff\u2028", ...more];
  for (let round = 0; round < 500; round++) {
    let text = [input, toFile, manifests][round % 3] ?? "";
    for (let change = 0; change <= random(6); change++) {
      const at = random(text.length);
      text = text.slice(0, at) + (pieces[random(pieces.length)] ?? "") + text.slice(at + random(5));
    }
    if (random(10) === 0) text = text.slice(0, random(text.length));
    assert.match(read(text).kind, /^(?:ok|bad)$/);
  }
});
