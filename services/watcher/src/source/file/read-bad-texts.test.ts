import assert from "node:assert/strict";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { test } from "vitest";
import { formatLocation } from "./input-result.ts";
import { input, manifests, read, state, toFile } from "./testing/texts.ts";

function problemsOf(...texts: readonly string[]): readonly string[] {
  const result = read(...texts);
  return result.kind === "ok" ? [] : result.problems.map((problem) => `${formatLocation(problem)}: ${problem.problem}`);
}

const badTable: readonly { name: string; texts: readonly string[]; problems: readonly (string | RegExp)[] }[] = [
  {
    name: "an unknown key",
    texts: ["services:\n- service:\n    name: a\n    clusterip: x\n"],
    problems: ['a.yaml:4: services[0].service.clusterip: unknown key "clusterip"'],
  },
  {
    name: "two unknown keys",
    texts: ["nodes: []\nfoo: 1\nbar: 2\n"],
    problems: ['a.yaml:2: foo: unknown key "foo"', 'a.yaml:3: bar: unknown key "bar"'],
  },
  {
    name: "a key in capitals",
    texts: ["services:\n- Service: {}\n"],
    problems: [/a\.yaml:2.*services\[0\]\.service: .*expected object/, /unknown key "Service"/],
  },
  {
    name: "neither manifest nor state file",
    texts: ["foo: 1\n"],
    problems: [/a\.yaml:1: neither a Kubernetes object .* nor a KPNG state file/],
  },
  { name: "a list of numbers", texts: ["- 1\n"], problems: [/neither/] },
  { name: "a text", texts: ["hello\n"], problems: [/neither/] },
  { name: "an apiVersion without kind", texts: ["apiVersion: v1\n"], problems: ["a.yaml:1: the object has no kind"] },
  { name: "a kind that is a number", texts: ["kind: 1\n"], problems: ["a.yaml:1: the object has kind 1"] },
  {
    name: "items that are not a list",
    texts: ["kind: List\nitems: 7\n"],
    problems: ["a.yaml:2: items: items is not a list: 7"],
  },
  {
    name: "an item that is null",
    texts: ["kind: List\nitems:\n- null\n"],
    problems: ["a.yaml:3: items[0]: null is not a Kubernetes object"],
  },
  {
    name: "an invalid field deep in a list",
    texts: ["kind: List\nitems:\n- kind: Service\n  metadata:\n    name: a\n  spec:\n    externalIPs:\n    - 10.0.0\n"],
    problems: ['a.yaml:8: items[0].spec.externalIPs[0]: "10.0.0" is not an IP address'],
  },
  {
    name: "the same in JSON",
    texts: ['{"kind":"List","items":[\n{"kind":"Node","metadata":{\n"name":""}}]}'],
    problems: [/^a\.yaml:3: items\[0\]\.metadata\.name: "" is not a valid name/],
  },
  {
    name: "an address of the wrong family",
    texts: [state("{endpoint: {ips: {v6: [10.1.0.1]}}}")],
    problems: [/services\[0\]\.endpoints\[0\]\.endpoint\.ips\.v6\[0\]: "10\.1\.0\.1" is not an address of family v6/],
  },
  {
    name: "an invalid address",
    texts: [state("{endpoint: {ips: {v4: [10.1]}}}")],
    problems: [/expected string, received number|"10.1" is not an IP address/],
  },
  {
    name: "an invalid CIDR",
    texts: ["services: [{service: {name: a, ipfilters: [{sourceranges: [10.0.0.0/33]}]}}]"],
    problems: [/"10\.0\.0\.0\/33" is not a CIDR/],
  },
  {
    name: "a protocol as text",
    texts: ["services: [{service: {name: a, ports: [{port: 1, protocol: TCP}]}}]"],
    problems: [/ports\[0\]\.protocol: .*expected number/],
  },
  {
    name: "a name with a slash",
    texts: ["services: [{service: {name: a/b}}]"],
    problems: [/"a\/b" is not a valid name/],
  },
  {
    name: "an affinity timeout out of range",
    texts: ["services: [{service: {name: a, sessionaffinity: {clientip: {timeoutseconds: 86401}}}}]"],
    problems: [/86401 is not an integer/],
  },
  {
    name: "an unknown affinity",
    texts: ["services: [{service: {name: a, sessionaffinity: {cookie: {}}}}]"],
    problems: [/unknown key "cookie"/],
  },
  {
    name: "a Service defined in two files",
    texts: ["kind: Service\nmetadata: {name: a}\n", "services:\n- service: {name: b}\n- service: {name: a}\n"],
    problems: ["b.yaml:3:3: Service default/a is already defined at a.yaml:1:1"],
  },
  {
    name: "a Node defined twice",
    texts: ["nodes:\n- name: a\n- name: a\n"],
    problems: ["a.yaml:3: Node a is already defined at a.yaml:2"],
  },
  {
    name: "a slice defined twice",
    texts: [manifests, manifests],
    problems: [
      /Service shop\/web is already defined at a\.yaml/,
      /EndpointSlice shop\/web\/web-a is already defined/,
      /Node n1/,
    ],
  },
  {
    name: "a slice under two Services",
    texts: [manifests, manifests.split("---\n")[1]?.replace("service-name: web", "service-name: b") ?? ""],
    problems: [/EndpointSlice shop\/web-a is already defined at/],
  },
  { name: "truncated YAML", texts: [`${input.slice(0, 300)}`], problems: [/./] },
  { name: "valid files with an invalid one", texts: [manifests, input, "foo: 1"], problems: [/^c\.yaml/] },
];

for (const { name, texts, problems } of badTable) {
  test(`invalid input: ${name}`, () => {
    const found = problemsOf(...texts);
    assert.notEqual(found.length, 0);
    for (const expected of problems) {
      const isThere = found.some((problem) =>
        typeof expected === "string" ? problem === expected : expected.test(problem),
      );
      assert.ok(isThere, `no ${expected} among ${JSON.stringify(found, null, 1)}`);
    }
  });
}

test("invalid input: a thousand problems are reported as twenty and a count", () => {
  const found = problemsOf(`services:\n${"- service: {name: a, x: 1}\n".repeat(1_000)}`);
  assert.equal(found.length, 21);
  assert.equal(found[20], "a.yaml: 980 more problems");
});

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
