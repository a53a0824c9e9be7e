import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { test } from "vitest";
import { parseAllDocuments } from "yaml";
import { parsePlainYaml } from "./plain-yaml.ts";

/** Result of package yaml; undefined if it reports an error. */
function reference(text: string): { readonly value: unknown } | undefined {
  const documents = parseAllDocuments(text, { logLevel: "error" });
  const [document] = documents;
  if (document === undefined) return { value: null };
  if (documents.length > 1 || document.errors.length > 0) return undefined;
  return { value: document.toJS() };
}

/** Fails where the plain reader gives a value that package yaml does not give. Returns whether it gave one. */
function compare(text: string): boolean {
  const plain = parsePlainYaml(text);
  if (plain.kind === "plain") assert.deepEqual({ value: plain.value }, reference(text), `of ${JSON.stringify(text)}`);
  return plain.kind === "plain";
}

const toFile = readFileSync("test/fixtures/kpng/to-file.yaml", "utf8");

const kubectl = `apiVersion: v1
items:
- apiVersion: v1
  kind: Service
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1","kind":"Service"}
      note: "quoted \\"text\\" with \\n"
      other: 'it''s: #1'
    creationTimestamp: "2024-01-01T00:00:00Z"
    labels: {}
    name: web # the name
  spec:
    clusterIP: 10.0.0.1
    clusterIPs:
    - 10.0.0.1
    - fd00::1
    ports:
      - name: http
        port: 80
        ratio: -1.5
      -
        name: dns
    empty:
    nested:
    - - a
      - b
    - - c
kind: List
`;

test("the plain parser reads the output of KPNG and kubectl", () => {
  assert.ok(compare(toFile));
  assert.ok(compare(kubectl));
});

const snippets: readonly string[] = [
  "",
  "a:",
  "a: ~",
  "a: null",
  "a: Null",
  "a: nUll",
  "a: TRUE",
  "a: tRue",
  "a: +1",
  "a: -0",
  "a: 0o17",
  "a: 0x1F",
  "a: 1_000",
  "a: 1e3",
  "a: 1.",
  "a: .5",
  "a: -.5",
  "a: .inf",
  "a: .nan",
  "a: 1.2.3",
  "a: 12345678901234567890",
  "a: 017",
  "a: 1:20",
  "a: ::1",
  "a: fd00::",
  "- fd00::",
  "- a:b",
  "- a: b: c",
  "a: b: c",
  "a: b:",
  "a : b",
  "a:b",
  "a: -",
  "a: - b",
  "a: ---",
  "a: b #c",
  "a: b#c",
  "a: #c",
  "a: 'b' #c",
  "a: 'b'c",
  'a: "b" c',
  "a: 'b",
  "a: |\n b",
  "a: |-\n b\n\n",
  "a: |\n\n b\n c",
  "a: |\n  b\n c\nd: 1",
  "a: |+\n b\n",
  "a: |2\n   b\n",
  "a: |\nb: 1",
  "a: |\n b\n# c\nd: 1",
  "a: >\n b",
  "- |\n b\n- c",
  "a: b\n c",
  "a: b\n\nc: d",
  "a:\n- b\nc: d",
  "a:\n - b\nc: d",
  "a:\n- b\n c: d",
  "a:\nb",
  "a:\n b",
  "-a",
  "- a\nb",
  "- a\n b",
  "a: [] #x",
  "a: []x",
  "a: {} {}",
  "a: [b]",
  "a: !!str 1",
  "a: &x 1",
  "a: *x",
  "? a",
  "a: ? b",
  "a: @b",
  "a: `b",
  "a: %b",
  "a: 1\na: 2",
  '"a b": 1',
  '"a": 1\na: 2',
  "null: 1",
  "true: 1",
  "1: a",
  "<<: a",
  "__proto__: 1",
  " a: 1",
  "a:\n  b:\n c:",
  "-\n- a",
  "- - a\n  - b\n-  - c\n   - d",
  "-   a: 1\n    b: 2",
  "- a: 1\n   b: 2",
  "-\n a: 1",
  "- # c\n a: 1",
  "a:  b  ",
  "a: b\\n",
  'a: "\\x41"',
  'a: "\\u0041"',
  'a: "b\n c"',
  "a: b\n# c",
  "# c\na: b",
  "a: b\n # c\nc: d",
  "a:\n  # c\n  b: 1",
  "a: \u00e9",
  "\u00e9: 1",
  "a: b,c",
  "a: b]c",
  "a: (b)",
  "a: =",
  "a: ~b",
  "a: ^",
  "a: $x",
  "a: +",
  "a: .",
  "a: ..",
  "a: ...",
  "a: 1 2",
  "a: 1,2",
  "a: - 1",
  "a: -1-",
  "- ? a",
  "a: \u2028b",
];

for (const snippet of snippets) {
  test(`the plain parser agrees with package yaml, or gives up, on ${JSON.stringify(snippet)}`, () => {
    compare(snippet);
    compare(`x:\n- ${snippet.replaceAll("\n", "\n  ")}\n`);
    compare(`x:\n  ${snippet.replaceAll("\n", "\n  ")}\ny: 1\n`);
  });
}

test("the plain parser agrees with package yaml, or gives up, on 3 000 mutated files", () => {
  const random = makeRandomBelow(makeRandom(1));
  const pieces = [
    ..." \n:-#'\"|>[]{}&*!?,%@`~0a.",
    "\n  ",
    "\n- ",
    ": ",
    " #",
    "- ",
    "  ",
    "null",
    "|\n",
    "{}",
    "[]",
    "---",
    "\n\n",
  ];
  let plainCount = 0;
  for (let round = 0; round < 3_000; round++) {
    let text = kubectl;
    for (let change = 0; change < 1 + random(4); change++) {
      const at = random(text.length);
      text = text.slice(0, at) + (pieces[random(pieces.length)] ?? "") + text.slice(at + random(4));
    }
    if (/^(?:---|\.\.\.|%)/m.test(text)) continue;
    if (compare(text)) plainCount++;
  }
  assert.ok(plainCount > 200, `only ${plainCount} texts were plain`);
});
