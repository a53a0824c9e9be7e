import { expect, test } from "vitest";
import { diffItems } from "./diff-items.ts";
import type { Item, Phase } from "./projection.ts";

const phases: readonly Phase[] = [
  { kind: "put", section: 0 },
  { kind: "delete", section: 1 },
  { kind: "put", section: 1 },
  { kind: "delete", section: 0 },
];

/** `items("s/x=1 e/y=2")`: x in section 0 and y in section 1. */
function items(text: string): Item[] {
  return text.split(" ").filter(Boolean).map(item);
}

function item(text: string): Item {
  const [section, rest = ""] = text.split("/");
  const [path = "", value = ""] = rest.split("=");
  return { section: section === "s" ? 0 : 1, path, bytes: Buffer.from(value) };
}

function show(sent: string, wanted: string): string[] {
  return diffItems(items(sent), items(wanted), phases).map((change) =>
    change.kind === "put"
      ? `put ${change.item.path}=${Buffer.from(change.item.bytes).toString()}`
      : `delete ${change.path}`,
  );
}

test("follows the phases; puts ascend, deletes descend", () => {
  expect(show("s/a=1 e/a1=1 e/a2=1 s/z=1", "s/c=1 s/b=1 e/b2=1 e/b1=1")).toEqual([
    "put b=1",
    "put c=1",
    "delete a2",
    "delete a1",
    "put b1=1",
    "put b2=1",
    "delete z",
    "delete a",
  ]);
});

test("says nothing of items whose bytes are the same", () => {
  expect(show("e/x=1 e/y=1", "e/x=1 e/y=2")).toEqual(["put y=2"]);
  expect(show("e/x=1", "e/x=1")).toEqual([]);
});

test("leads from any state to any other", () => {
  const states = ["", "s/a=1", "s/a=1 e/a1=1", "s/a=2 e/a1=1 e/a2=1 s/b=1", "s/b=1 e/b1=1 e/a1=7"].map(items);
  const flat = (state: readonly Item[]) => new Map(state.map((one) => [`${one.section} ${one.path}`, one.bytes]));
  for (const from of states) {
    for (const to of states) {
      const held = flat(from);
      for (const change of diffItems(from, to, phases)) {
        if (change.kind === "put") held.set(`${change.item.section} ${change.item.path}`, change.item.bytes);
        else expect(held.delete(`${change.section} ${change.path}`)).toBe(true);
      }
      expect(held).toEqual(flat(to));
    }
  }
});
