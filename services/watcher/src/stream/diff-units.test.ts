import { expect, test } from "vitest";
import { diffUnits } from "./diff-units.ts";
import type { Item, Phase, Units } from "./projection.ts";

const phases: readonly Phase[] = [
  { kind: "put", section: 0 },
  { kind: "delete", section: 1 },
  { kind: "put", section: 1 },
  { kind: "delete", section: 0 },
];

/** `units("a: s/x=1 e/y=2", …)`: a unit "a" with items x in section 0 and y in section 1. */
function units(...texts: string[]): Units {
  return new Map(
    texts.map((text) => {
      const [key = "", items = ""] = text.split(": ");
      return [key, { inputs: [text], items: items.split(" ").filter(Boolean).map(item) }] as const;
    }),
  );
}

function item(text: string): Item {
  const [section, rest = ""] = text.split("/");
  const [path = "", value = ""] = rest.split("=");
  return { section: section === "s" ? 0 : 1, path, bytes: Buffer.from(value) };
}

function show(sent: Units, wanted: Units): string[] {
  return diffUnits(sent, wanted, phases).map((change) =>
    change.kind === "put"
      ? `put ${change.item.path}=${Buffer.from(change.item.bytes).toString()}`
      : `delete ${change.path}`,
  );
}

test("follows the phases; puts ascend, deletes descend", () => {
  const sent = units("a: s/a=1 e/a1=1 e/a2=1", "z: s/z=1");
  const wanted = units("b: s/b=1 e/b2=1 e/b1=1", "c: s/c=1");
  expect(show(sent, wanted)).toEqual([
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

test("says nothing of items whose bytes are the same, even from another unit", () => {
  expect(show(units("a: e/x=1 e/y=1"), units("a: e/x=1 e/y=2"))).toEqual(["put y=2"]);
  expect(show(units("a: e/x=1"), units("b: e/x=1"))).toEqual([]);
});

test("never looks into a unit that is the same object", () => {
  const same = { inputs: [], items: [item("e/x=1")] };
  Object.defineProperty(same, "items", { get: () => expect.unreachable("the unit was read") });
  expect(diffUnits(new Map([["a", same]]), new Map([["a", same]]), phases)).toEqual([]);
});

test("leads from any state to any other", () => {
  const states = [
    units(),
    units("a: s/a=1"),
    units("a: s/a=1 e/a1=1"),
    units("a: s/a=2 e/a1=1 e/a2=1", "b: s/b=1"),
    units("b: s/b=1 e/b1=1 e/a1=7"),
  ];
  const flat = (state: Units) =>
    new Map([...state.values()].flatMap((unit) => unit.items.map((one) => [`${one.section} ${one.path}`, one.bytes])));
  for (const from of states) {
    for (const to of states) {
      const held = flat(from);
      for (const change of diffUnits(from, to, phases)) {
        if (change.kind === "put") held.set(`${change.item.section} ${change.item.path}`, change.item.bytes);
        else expect(held.delete(`${change.section} ${change.path}`)).toBe(true);
      }
      expect(held).toEqual(flat(to));
    }
  }
});
