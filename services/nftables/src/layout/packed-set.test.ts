import { expect, test } from "vitest";
import { maxEndpoints, maxSetId, packed, packSet, unpackSet } from "./packed-set.ts";

const kinds = ["plain", "masqueradeUnlessPod", "masquerade", "local"] as const;

test("a packed set is unpacked to the same values, at the limits of each field", () => {
  for (const kind of kinds) {
    for (const id of [1, maxSetId]) {
      for (const count of [0, 1, maxEndpoints]) {
        const value = packSet({ kind, id, count });
        expect(value).toBeLessThan(2 ** 32);
        expect(unpackSet(value)).toEqual({ kind, id, count });
      }
    }
  }
});

test("masks and limits as rules use them select the fields", () => {
  const value = BigInt(packSet({ kind: "local", id: 0x1_2345, count: 678 }));
  expect(value & BigInt(packed.countMask)).toBe(678n);
  expect(value & BigInt(packed.idMask)).toBe(BigInt(packSet({ kind: "plain", id: 0x1_2345, count: 0 })));
  const limits = kinds.map((kind) => packed.firstOfKind(kind));
  expect(limits).toEqual([0, 0x4000_0000, 0x8000_0000, 0xc000_0000]);
  expect(packSet({ kind: "plain", id: 1, count: 0 })).toBe(packed.firstId);
});
