import assert from "node:assert/strict";
import { test } from "vitest";
import { parseDocuments } from "./parse-documents.ts";

function values(text: string): unknown {
  const parsed = parseDocuments(text);
  return parsed.kind === "ok" ? parsed.documents : parsed;
}

const goodTable: readonly { name: string; text: string; values: readonly unknown[] }[] = [
  { name: "an empty file has no document", text: "", values: [] },
  { name: "a file of comments has no document", text: "# nothing\n\n", values: [] },
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

const badTable: readonly { name: string; text: string; at: string; says: RegExp }[] = [
  { name: "a NUL character", text: "a: 1\nb: \0\n", at: "2:4", says: /null byte/ },
  { name: "a duplicate key", text: "a: 1\nb: 2\na: 3\n", at: "3:1", says: /duplicated/ },
  { name: "a duplicate key of a later document", text: "x: 1\n---\na: 1\na: 3\n", at: "4:1", says: /duplicated/ },
  { name: "an open quote", text: 'a: "x\nb: 1\n', at: "2:1", says: /indentation/ },
  { name: "an open bracket", text: "a: 1\nb: [1, 2\n", at: "3:1", says: /indentation/ },
  { name: "a tab as indentation", text: "a:\n\tb: 1\n", at: "2:1", says: /tab/ },
  { name: "lines of uneven depth", text: "a:\n    b: 1\n  c: 2\n", at: "3:3", says: /bad indentation/ },
  { name: "truncated JSON", text: '{\n"a": [1,\n', at: "3:1", says: /unexpected end/ },
  { name: "a list of 200 000 levels", text: `a:\n- ${"[".repeat(200_000)}`, at: "2:100", says: /maxDepth/ },
  { name: "an unknown tag", text: "a: !x 1\n", at: "1:4", says: /unknown .*tag/ },
];

for (const { name, text, at, says } of badTable) {
  test(`documents: ${name} is a problem with its position`, () => {
    const parsed = parseDocuments(text);
    assert.equal(parsed.kind, "bad", JSON.stringify(values(text)));
    assert.equal(`${parsed.line}:${parsed.column}`, at, JSON.stringify(parsed));
    assert.match(parsed.problem, says);
  });
}

test("documents: more than 100 aliases are a problem, because aliases of aliases multiply", () => {
  const parsed = parseDocuments(`a: &x 1\nb: [${Array(101).fill("*x").join(", ")}]\n`);
  assert.equal(parsed.kind, "bad");
  assert.match(parsed.problem, /alias/);
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

test("documents: YAML of more than 64 MiB is rejected", () => {
  const parsed = parseDocuments(`a: ${"x".repeat(65 << 20)}`);
  assert.equal(parsed.kind, "bad");
  assert.match(parsed.problem, /write JSON/);
});
