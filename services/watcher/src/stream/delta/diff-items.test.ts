import { expect, test } from "vitest";
import { setFrame } from "../../items/frames.ts";
import type { Item, Order } from "../../items/item.ts";
import { opsIn } from "../serve/watch-ops.ts";
import { diffInSteps, diffItems } from "./diff-items.ts";
import { type Changes, pause } from "./projection.ts";

const order: Order = {
  sections: [1, 2],
  phases: [
    { kind: "put", section: 0 },
    { kind: "delete", section: 1 },
    { kind: "put", section: 1 },
    { kind: "delete", section: 0 },
  ],
};

/** `items("s/x=1 e/y=2")`: x in section 0 and y in section 1. */
function items(text: string): Item[] {
  return text.split(" ").filter(Boolean).map(item);
}

function item(text: string): Item {
  const [letter, rest = ""] = text.split("/");
  const [path = "", value = ""] = rest.split("=");
  const section = letter === "s" ? 0 : 1;
  return { section, path, frame: setFrame(order.sections[section] ?? 0, path, Buffer.from(value)) };
}

function describeChanges(changes: Changes): string[] {
  const ops = [...changes.frames()].flatMap((chunk) => [...opsIn(chunk)]);
  return ops.map(({ Op: op }) =>
    op.case === "Set"
      ? `put ${op.value.Ref?.Path}=${Buffer.from(op.value.Bytes)}`
      : `${op.case} ${(op.value as { Path: string }).Path}`,
  );
}

function show(sent: string, wanted: string): string[] {
  return describeChanges(diffItems(items(sent), items(wanted), order));
}

test("diffItems follows the phases; puts ascend by path, deletes descend", () => {
  expect(show("s/a=1 e/a1=1 e/a2=1 s/z=1", "s/c=1 s/b=1 e/b2=1 e/b1=1")).toEqual([
    "put b=1",
    "put c=1",
    "Delete a2",
    "Delete a1",
    "put b1=1",
    "put b2=1",
    "Delete z",
    "Delete a",
  ]);
});

test("diffItems returns no operation for an item whose bytes are equal", () => {
  expect(show("e/x=1 e/y=1", "e/x=1 e/y=2")).toEqual(["put y=2"]);
  expect(show("e/x=1", "e/x=1")).toEqual([]);
});

test("diffItems sets isEmpty exactly if there are no frames", () => {
  expect(diffItems(items("e/x=1"), items("e/x=1"), order).isEmpty).toBe(true);
  expect(diffItems(items("e/x=1"), items(""), order).isEmpty).toBe(false);
});

test("diffInSteps has the operations of diffItems, and pauses after at most 1 000 items", () => {
  const many = (value: string): Item[] =>
    Array.from({ length: 5_000 }, (_, index) => item(`e/${index * 7919}=${value}`));
  const [sent, wanted] = [[...many("1"), ...items("s/a=1")], many("2").slice(1_000)];
  const frames = [...diffInSteps(sent, wanted, order).frames()];
  expect(Buffer.concat(frames)).toEqual(Buffer.concat([...diffItems(sent, wanted, order).frames()]));
  // 5 000 items are read, 4 000 are read and compared, 4 000 puts and 1 000 deletes are sorted.
  expect(frames.filter((frame) => frame === pause).length).toBeGreaterThanOrEqual(5 + 4 + 3);
});
