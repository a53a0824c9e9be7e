import { describe, expect, test } from "vitest";
import { type BrakeOptions, brakeList, type HeldDeletions, isSuspicious } from "./brake.ts";

const cases = [
  { name: "all objects", current: 100, deleted: 100, isHeld: true },
  { name: "nine of ten objects", current: 100, deleted: 90, isHeld: true },
  { name: "slightly fewer than nine of ten", current: 100, deleted: 89, isHeld: false },
  { name: "all of fewer than ten objects", current: 9, deleted: 9, isHeld: false },
  { name: "all of ten objects", current: 10, deleted: 10, isHeld: true },
  { name: "nothing, before the first list", current: 0, deleted: 0, isHeld: false },
];
for (const { name, current, deleted, isHeld } of cases) {
  test(`a list that deletes ${name} is ${isHeld ? "held" : "applied"}`, () => {
    expect(isSuspicious(current, deleted, {})).toBe(isHeld);
  });
}

describe("held deletions", () => {
  const keys = Array.from({ length: 20 }, (_, index) => `k${index}`);
  const options: BrakeOptions = { holdMs: 300_000 };
  const list = (listed: readonly string[], nowMs: number, isConfirming: boolean, held?: HeldDeletions) =>
    brakeList({ currentKeys: keys, has: (key) => listed.includes(key), isConfirming, nowMs }, held, options);
  const held = list([], 1_000, true);

  test("begin with all keys that the list lacks", () => {
    expect(held).toEqual({ keys: new Set(keys), currentCount: 20, sinceMs: 1_000 });
  });

  test("stay for a list that does not confirm, and for one that comes too soon", () => {
    expect(list([], 60_000, false, held)).toEqual(held);
    expect(list([], 30_999, true, held)).toEqual(held);
  });

  test("are released by a confirming list, and by any list after the longest time", () => {
    expect(list([], 31_000, true, held)).toBeUndefined();
    expect(list([], 301_000, false, held)).toBeUndefined();
  });

  test("end for the objects that a list contains again", () => {
    expect(list(["k0"], 60_000, false, held)?.keys).toEqual(new Set(keys.slice(1)));
    expect(list(keys, 60_000, false, held)).toBeUndefined();
  });

  test("do not exist with a longest time of 0", () => {
    const all = { currentKeys: keys, has: () => false, isConfirming: false, nowMs: 1 };
    expect(brakeList(all, undefined, { holdMs: 0 })).toBeUndefined();
  });
});
