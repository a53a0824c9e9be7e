import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { SortedMap } from "./sorted-map.ts";

test("a map changed at random holds what a plain map holds, in ascending order", () => {
  const random = makeRandomBelow(makeRandom(1));
  let sorted = SortedMap.from<string, number>([]);
  const plain = new Map<string, number>();
  for (let round = 0; round < 300; round++) {
    const changes = new Map<string, number | undefined>();
    const count = random(round % 50 === 0 ? 800 : 8);
    for (let i = 0; i < count; i++) changes.set(`k${random(2_000)}`, random(3) === 0 ? undefined : random(1_000));
    const before = [...sorted];
    const after = sorted.with(changes);
    for (const [key, value] of changes) value === undefined ? plain.delete(key) : plain.set(key, value);
    const expected = [...plain].sort(([a], [b]) => (a < b ? -1 : 1));
    expect([...after]).toEqual(expected);
    expect(after.size).toBe(plain.size);
    expect([...sorted], "the map before is untouched").toEqual(before);
    sorted = after;
  }
  for (let i = 0; i < 2_000; i++) expect(sorted.get(`k${i}`)).toBe(plain.get(`k${i}`));
});
