import assert from "node:assert/strict";
import { test } from "vitest";
import type { FieldPath } from "../../decode/decoded.ts";
import { parseDocuments } from "./parse-documents.ts";

function values(text: string): unknown {
  const parsed = parseDocuments(text);
  return parsed.kind === "ok" ? parsed.documents.map((document) => document.value) : parsed;
}

const goodTable: readonly { name: string; text: string; values: readonly unknown[] }[] = [
  { name: "an empty file has no document", text: "", values: [] },
  { name: "a file of comments has an empty document", text: "# nothing\n\n", values: [null] },
  { name: "documents are separated by ---", text: "a: 1\n---\nb: 2\n", values: [{ a: 1 }, { b: 2 }] },
  { name: "a leading separator makes no document", text: "---\na: 1\n", values: [{ a: 1 }] },
  { name: "an empty document is null", text: "a: 1\n---\n---\nb: 2\n---\n", values: [{ a: 1 }, null, { b: 2 }, null] },
  {
    name: "a document may start on the line of the separator",
    text: "--- {a: 1}\n--- # c\nb: 2\n",
    values: [{ a: 1 }, { b: 2 }],
  },
  { name: "--- inside a line separates nothing", text: "a: x---\nb: ---x\n", values: [{ a: "x---", b: "---x" }] },
  { name: "a byte order mark is ignored", text: "\ufeffa: 1\n", values: [{ a: 1 }] },
  { name: "a byte order mark before JSON is ignored", text: '\ufeff{"a": 1}', values: [{ a: 1 }] },
  { name: "CRLF ends lines", text: "a: 1\r\nb:\r\n- x\r\n---\r\nc: 2\r\n", values: [{ a: 1, b: ["x"] }, { c: 2 }] },
  { name: "JSON is read", text: '\n {"a": [1, {"b": null}]}\n', values: [{ a: [1, { b: null }] }] },
  { name: "flow YAML that is not JSON is read", text: "{a: 1, b: [x]}", values: [{ a: 1, b: ["x"] }] },
  { name: "a list at the top is read", text: "- a\n- b: 1\n  c: 2\n", values: [["a", { b: 1, c: 2 }]] },
  { name: "anchors and aliases are resolved", text: "a: &x {b: 1}\nc: *x\n", values: [{ a: { b: 1 }, c: { b: 1 } }] },
  {
    name: "directives and document ends are supported",
    text: "%YAML 1.2\n---\na: 1\n...\n---\nb: 2\n",
    values: [{ a: 1 }, { b: 2 }],
  },
  {
    name: "words such as yes and on are text, unlike in YAML 1.1",
    text: "a: yes\nb: on\n",
    values: [{ a: "yes", b: "on" }],
  },
];

for (const { name, text, values: expected } of goodTable) {
  test(`documents: ${name}`, () => assert.deepEqual(values(text), expected));
}

const badTable: readonly { name: string; text: string; line: number | undefined; says: RegExp }[] = [
  { name: "a NUL character", text: "a: 1\nb: \0\n", line: 2, says: /NUL/ },
  { name: "a duplicate key", text: "a: 1\nb: 2\na: 3\n", line: 3, says: /unique/ },
  { name: "a duplicate key of a later document", text: "x: 1\n---\na: 1\na: 3\n", line: 4, says: /unique/ },
  { name: "an open quote", text: 'a: "x\nb: 1\n', line: 3, says: /quote/i },
  { name: "an open bracket", text: "a: 1\nb: [1, 2\n", line: 3, says: /flow/i },
  { name: "a tab as indentation", text: "a:\n\tb: 1\n", line: 2, says: /tab/i },
  { name: "lines of uneven depth", text: "a:\n    b: 1\n  c: 2\n", line: 3, says: /same column/ },
  { name: "truncated JSON", text: '{\n"a": [1,\n', line: 3, says: /./ },
];

for (const { name, text, line, says } of badTable) {
  test(`documents: ${name} is a problem with its line`, () => {
    const parsed = parseDocuments(text);
    assert.equal(parsed.kind, "bad", JSON.stringify(values(text)));
    assert.equal(parsed.problems[0]?.line, line, JSON.stringify(parsed.problems));
    assert.match(parsed.problems[0]?.problem ?? "", says);
  });
}

test("documents: nested aliases that would expand to a billion items are a problem, not a crash", () => {
  const lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"];
  for (let level = 1; level < 10; level++) {
    lines.push(
      `a${level}: &a${level} [${Array(10)
        .fill(`*a${level - 1}`)
        .join(",")}]`,
    );
  }
  const parsed = parseDocuments(lines.join("\n"));
  assert.equal(parsed.kind, "bad");
  assert.match(parsed.problems[0]?.problem ?? "", /alias/i);
});

for (const [name, text] of [
  ["brackets", "[".repeat(200_000)],
  ["closed brackets", `a: ${"[".repeat(50_000)}${"]".repeat(50_000)}`],
  ["dashes", "- ".repeat(20_000)],
  ["mappings", Array.from({ length: 3_000 }, (_, depth) => `${" ".repeat(depth)}a:`).join("\n")],
] as const) {
  test(`documents: very deep ${name} give a result, not a crash`, () => {
    assert.match(parseDocuments(text).kind, /^(ok|bad)$/);
  });
}

for (const { name, quote, unit } of [
  { name: "without quotes", quote: "", unit: "x" },
  { name: "in double quotes", quote: '"', unit: "x" },
  { name: "in single quotes", quote: "'", unit: "x" },
]) {
  test(`documents: a text of 10 MB ${name} is read`, () => {
    const long = unit.repeat(10_000_000);
    const [document] = values(`a:\n  b: ${quote}${long}${quote}\n`) as readonly [{ a: { b: string } }];
    assert.ok(document.a.b === long);
  });
}

for (const { name, text } of [
  { name: "10 MB of escapes", text: `a: "${"\\n".repeat(5_000_000)}"\n` },
  { name: "10 MB of doubled quotes", text: `a: '${"''".repeat(5_000_000)}'\n` },
  { name: "a quote that is still open after 10 MB", text: `a: "${"x".repeat(10_000_000)}\n` },
  { name: "a key of 10 MB", text: `${"x".repeat(10_000_000)}: 1\n` },
  { name: "a quoted key of 10 MB", text: `"${"x".repeat(10_000_000)}": 1\n` },
]) {
  test(`documents: ${name} give a result, not a crash`, () => {
    assert.match(parseDocuments(text).kind, /^(?:ok|bad)$/);
  });
}

test("documents: YAML that is not plain is rejected above the size limit", () => {
  const parsed = parseDocuments(`x: 1\n---\n${"- b: 1\n".repeat(2_000_000)}- a: &x 1\n- b: 1\n`);
  assert.equal(parsed.kind, "bad");
  assert.equal(parsed.problems[0]?.line, 2_000_003);
  assert.match(parsed.problems[0]?.problem ?? "", /special YAML/);
});

const located: readonly { text: string; path: FieldPath; line: number }[] = [
  { text: "a: 1\nb:\n  c: 2\n  d:\n  - x\n  - y: 1\n    z: 2\n", path: ["b", "d", 1, "z"], line: 7 },
  { text: "a: 1\nb:\n  c: 2\n", path: ["b", "missing"], line: 2 },
  { text: "a: 1\nb: {c: [1,\n 2]}\n", path: ["b", "c", 1], line: 3 },
  { text: "a: &x\n  b: 1\nc: *x\n", path: ["c", "b"], line: 2 },
  { text: "x: 1\n---\na: 1\nb:\n- 1\n- 2\n", path: ["b", 1], line: 6 },
  { text: '{\n "a": {"x]": "\\"["},\n "b": [\n  {"c": 1},\n  {"c":\n 2}\n ]\n}', path: ["b", 1, "c"], line: 5 },
  { text: '{\n "a": [],\n "b": 1}', path: ["a", 3], line: 2 },
  { text: "[1,\n2]", path: [1], line: 2 },
  // JSON.parse keeps the last of several values.
  { text: '{"a": {"b": 1},\n"a": {\n"b": 2},\n"c": 3}', path: ["a", "b"], line: 3 },
];

for (const { text, path, line } of located) {
  test(`documents: ${JSON.stringify(path)} is in line ${line} of ${JSON.stringify(text)}`, () => {
    const parsed = parseDocuments(text);
    assert.equal(parsed.kind, "ok");
    assert.equal(parsed.documents.at(-1)?.locate(path).line, line);
  });
}
