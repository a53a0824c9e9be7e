import assert from "node:assert/strict";
import { test } from "vitest";
import { parseDocuments } from "./parse-documents.ts";

test.each<{ name: string; text: string; values: readonly unknown[] }>([
  { name: "an empty file has no document", text: "", values: [] },
  { name: "documents are separated by ---", text: "a: 1\n---\nb: 2\n", values: [{ a: 1 }, { b: 2 }] },
  { name: "a byte order mark is ignored", text: "\ufeffa: 1\n", values: [{ a: 1 }] },
  { name: "a byte order mark before JSON is ignored", text: '\ufeff{"a": 1}', values: [{ a: 1 }] },
  { name: "JSON is read", text: '\n {"a": [1, {"b": null}]}\n', values: [{ a: [1, { b: null }] }] },
  {
    name: "words such as yes and on are text, unlike in YAML 1.1",
    text: "a: yes\nb: on\n",
    values: [{ a: "yes", b: "on" }],
  },
])("documents: $name", ({ text, values: documents }) => {
  assert.deepEqual(parseDocuments(text), { kind: "ok", documents });
});

test.each([
  { name: "a duplicate key", text: "a: 1\nb: 2\na: 3\n", at: "3:1" },
  { name: "a duplicate key of a later document", text: "x: 1\n---\na: 1\na: 3\n", at: "4:1" },
  { name: "an open quote", text: 'a: "x\nb: 1\n', at: "2:1" },
  { name: "truncated JSON", text: '{\n"a": [1,\n', at: "3:1" },
  { name: "a list of 200 000 levels", text: `a:\n- ${"[".repeat(200_000)}`, at: "2:100" },
  // Aliases of aliases multiply.
  { name: "more than 100 aliases", text: `a: &x 1\nb: [${Array(101).fill("*x").join(", ")}]\n`, at: "2:406" },
  { name: "YAML of more than 64 MiB", text: `a: ${"x".repeat(65 << 20)}`, at: "" },
])("documents: $name is a problem, with its position if it has one", ({ text, at }) => {
  const parsed = parseDocuments(text);
  assert.equal(parsed.kind, "bad");
  assert.equal([parsed.line, parsed.column].filter((part) => part !== undefined).join(":"), at);
});
