import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ApplyState, ApplyStateSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { expect, test } from "vitest";
import { enumWord, formatAge, formatCount, formatMs } from "./text.ts";

test.each([
  [0, "0µs"],
  [0.3501, "350µs"],
  [0.99951, "1ms"],
  [1.204, "1.2ms"],
  [45.04, "45ms"],
  [999.6, "1s"],
  [1_250, "1.25s"],
  [59_960, "1m"],
  [200_000, "3m20s"],
  [7_500_000, "2h5m"],
  [86_400_000 * 4, "4d"],
])("formatMs formats %f ms as %s", (ms, text) => {
  expect(formatMs(ms)).toBe(text);
});

test("formatAge prints whole seconds, and 0s for a time in the future", () => {
  expect(formatAge(timestampFromMs(1_000), 13_900)).toBe("12s");
  expect(formatAge(timestampFromMs(5_000), 1_000)).toBe("0s");
  expect(formatAge(undefined)).toBe("");
});

test("formatCount uses the singular for 1 only", () => {
  expect([0, 1, 2].map((count) => formatCount(count, "slice"))).toEqual(["0 slices", "1 slice", "2 slices"]);
});

test("enumWord prints a value without its prefix, and nothing for an unknown value", () => {
  expect(enumWord(ApplyStateSchema, ApplyState.CURRENT)).toBe("current");
  expect(enumWord(ApplyStateSchema, 99 as ApplyState)).toBe("");
});
