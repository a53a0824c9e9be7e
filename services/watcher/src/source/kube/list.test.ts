import { expect, test } from "vitest";
import { ListSplitter } from "./list.ts";

function split(text: string, chunkBytes: number): { readonly items: readonly unknown[]; readonly around: unknown } {
  const splitter = new ListSplitter();
  const bytes = Buffer.from(text);
  const items: unknown[] = [];
  for (let from = 0; from < bytes.length; from += chunkBytes) {
    items.push(...splitter.split(bytes.subarray(from, from + chunkBytes)).map((item) => JSON.parse(item)));
  }
  return { items, around: JSON.parse(splitter.end()) };
}

const items = [
  { metadata: { name: "a" }, items: [{ items: [] }], text: 'a "quoted" ] } , [ { text \\' },
  { name: "ü – 漢字", nested: [[1, 2], [{ "}": "{" }]] },
  {},
];

test.each([
  ["after the metadata", { kind: "List", metadata: { resourceVersion: "7", continue: "x" }, items }],
  ["before the metadata", { items, metadata: { resourceVersion: "7" } }],
  ["of an empty list", { metadata: { resourceVersion: "7" }, items: [] }],
  ["of which there are none", { metadata: { items: [1], resourceVersion: "7" }, items: null }],
])("items %s are separated, however the text is cut", (_, list) => {
  for (const text of [JSON.stringify(list), JSON.stringify(list, undefined, 2)]) {
    for (const chunkBytes of [1, 2, 7, 1_000]) {
      const found = split(text, chunkBytes);
      expect(found.items).toEqual(list.items ?? []);
      expect(found.around).toEqual({ ...list, items: list.items === null ? null : [] });
    }
  }
});

test.each(["", "x", '{"items":[{"a":1},{"b"', '{"items":[{"a":1}'])(
  "a text that is not a list of objects has no valid text around its items: %s",
  (text) => {
    const splitter = new ListSplitter();
    splitter.split(Buffer.from(text));
    expect(() => JSON.parse(splitter.end())).toThrow();
  },
);
