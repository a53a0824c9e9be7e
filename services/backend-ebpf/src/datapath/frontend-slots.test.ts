import { describe, expect, test } from "vitest";
import { senders, sizes } from "../layout/layout.ts";
import { FrontendSlots, Spans } from "./frontend-slots.ts";

describe("Spans", () => {
  test("certain numbers can be reserved only while all of them are free", () => {
    const spans = new Spans(0, 10);
    expect(spans.reserve(4, 3)).toBe(true);
    expect([spans.reserve(6, 1), spans.reserve(3, 2), spans.reserve(9, 2)]).toEqual([false, false, false]);
    expect([spans.take(4), spans.take(3)]).toEqual([0, 7]);
  });

  test("random calls never give out a number twice, and lose none", () => {
    for (let seed = 1; seed <= 20; seed++) {
      let state = seed;
      const random = (below: number): number => {
        state = (state * 48_271) % 0x7fff_ffff;
        return state % below;
      };
      const spans = new Spans(0, 100);
      const taken = new Map<number, number>();
      for (let step = 0; step < 500; step++) {
        const length = 1 + random(9);
        const first = random(2) === 0 ? spans.take(length) : undefined;
        if (first !== undefined) {
          const isFree = [...taken].every(([start, size]) => first + length <= start || start + size <= first);
          expect(isFree, `seed ${seed}, step ${step}`).toBe(true);
          taken.set(first, length);
        } else {
          const [entry] = taken;
          if (entry === undefined) continue;
          taken.delete(entry[0]);
          spans.give(...entry);
        }
      }
      for (const entry of taken) spans.give(...entry);
      expect(spans.take(100), `seed ${seed}`).toBe(0);
    }
  });
});

test("a slot of an earlier run keeps its routes", () => {
  const memory = Buffer.from(new ArrayBuffer(4 * sizes.slot));
  const earlier = new FrontendSlots("v4", memory, 2);
  const slot = earlier.take("key") ?? -1;
  for (const index of senders.keys()) earlier.prepare(index, 1, 7 + index);
  earlier.write(slot);
  const slots = new FrontendSlots("v4", memory, 2);
  expect(slots.reserve(slot)).toBe(true);
  expect(senders.map((_, index) => slots.runOf(slot, index))).toEqual(senders.map((_, index) => 7 + index));
});
