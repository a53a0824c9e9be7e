import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { afterEach, beforeEach, test } from "vitest";
import { makeDecodeOptions } from "../decode/decoded.ts";
import { loadInput } from "./read-inputs.ts";
import { input, manifests, read, readGood, state, toFile } from "./testing/texts.ts";

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

test("a file named twice is read once, and files, folders and standard input can be mixed", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, node("a"));
  const standardInput = Readable.from([Buffer.from("nodes: [{na"), Buffer.from("me: z}]")]);
  assert.deepEqual(await nodesOf([file, folder, file, "-"], { standardInput }), ["a", "z"]);
});

test("a dangling link in a folder is a problem", async () => {
  await symlink("nowhere", join(folder, "a.yaml"));
  assert.equal((await problemsOf([folder])).length, 1);
});

test("an endless device is a problem and does not exhaust memory", async () => {
  const [problem] = await problemsOf(["/dev/zero"], { maxBytes: 1_000_000 });
  assert.match(problem?.problem ?? "", /larger than 1000000 bytes/);
});

test("a file that is not UTF-8 is a problem", async () => {
  const file = join(folder, "a.yaml");
  await writeFile(file, Buffer.from([0x61, 0x3a, 0x20, 0xff, 0xfe]));
  assert.deepEqual(await problemsOf([file]), [{ at: file, problem: "not UTF-8 text" }]);
});

test("a problem in one file invalidates the whole input", async () => {
  await writeFile(join(folder, "a.yaml"), node("a"));
  await writeFile(join(folder, "b.yaml"), "foo: 1\n");
  const problems = await problemsOf([folder]);
  assert.deepEqual(
    problems.map(({ at }) => at),
    [join(folder, "b.yaml")],
  );
});

test("a pipe is read when its writer opens it, and only once", async () => {
  const streams = new Map();
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  const reading = loadInput([pipe], { decode, streams });
  await writeFile(pipe, "nodes: [{name: a}]\n");
  for (const loaded of [await reading, await loadInput([pipe], { decode, streams })]) {
    const result = loaded.read();
    assert.deepEqual(result.kind === "ok" && result.objects.nodes?.map((node) => node.name), ["a"]);
  }
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

function textProblemsOf(...texts: readonly string[]): readonly string[] {
  const result = read(...texts);
  return result.kind === "ok" ? [] : result.problems.map(({ at, problem }) => `${at}: ${problem}`);
}

const badTable: readonly { name: string; texts: readonly string[]; problems: readonly (string | RegExp)[] }[] = [
  {
    name: "an unknown key",
    texts: ["services:\n- service:\n    name: a\n    clusterip: x\n"],
    problems: ['a.yaml: services[0].service.clusterip: unknown key "clusterip"'],
  },
  {
    name: "a key in capitals",
    texts: ["services:\n- Service: {}\n"],
    problems: [/a\.yaml: services\[0\]\.service: .*expected object/, /unknown key "Service"/],
  },
  {
    name: "neither manifest nor state file",
    texts: ["foo: 1\n"],
    problems: [/a\.yaml: neither a Kubernetes object .* nor a KPNG state file/],
  },
  {
    name: "an invalid field deep in a list",
    texts: ["kind: List\nitems:\n- kind: Service\n  metadata:\n    name: a\n  spec:\n    externalIPs:\n    - 10.0.0\n"],
    problems: ['a.yaml: items[0].spec.externalIPs[0]: "10.0.0" is not an IP address'],
  },
  {
    name: "an address of the wrong family",
    texts: [state("{endpoint: {ips: {v6: [10.1.0.1]}}}")],
    problems: [/services\[0\]\.endpoints\[0\]\.endpoint\.ips\.v6\[0\]: "10\.1\.0\.1" is not an address of family v6/],
  },
  {
    name: "a protocol as text",
    texts: ["services: [{service: {name: a, ports: [{port: 1, protocol: TCP}]}}]"],
    problems: [/ports\[0\]\.protocol: .*expected number/],
  },
  {
    name: "a Service defined in two files",
    texts: ["kind: Service\nmetadata: {name: a}\n", "services:\n- service: {name: b}\n- service: {name: a}\n"],
    problems: ["b.yaml: services[1].service: Service default/a is already defined at a.yaml"],
  },
  {
    name: "a Node defined twice",
    texts: ["nodes:\n- name: a\n- name: a\n"],
    problems: ["a.yaml: nodes[1]: Node a is already defined at a.yaml: nodes[0]"],
  },
  {
    name: "a slice defined twice",
    texts: [manifests, manifests],
    problems: [
      /^b\.yaml, document 1: Service shop\/web is already defined at a\.yaml, document 1$/,
      /EndpointSlice shop\/web\/web-a is already defined/,
      /Node n1/,
    ],
  },
  {
    name: "a slice under two Services",
    texts: [manifests, manifests.split("---\n")[1]?.replace("service-name: web", "service-name: b") ?? ""],
    problems: [/EndpointSlice shop\/web-a is already defined at/],
  },
];

for (const { name, texts, problems } of badTable) {
  test(`invalid input: ${name}`, () => {
    const found = textProblemsOf(...texts);
    assert.notEqual(found.length, 0);
    for (const expected of problems) {
      const isThere = found.some((problem) =>
        typeof expected === "string" ? problem === expected : expected.test(problem),
      );
      assert.ok(isThere, `no ${expected} among ${JSON.stringify(found, null, 1)}`);
    }
  });
}

test("a randomly mutated file is read or rejected, and never throws", () => {
  const random = makeRandomBelow(makeRandom(7));
  const pieces = [
    ..." \n:-#'\"|>[]{}&*!?,%@`~0a.\t\0\r\ufeff\u2028",
    "\n---\n",
    "\n...\n",
    "&a ",
    "*a",
    "null",
    "  ",
    "!!binary ",
    "<<: ",
    "9e99",
  ];
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
