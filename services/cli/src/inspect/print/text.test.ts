import { expect, test } from "vitest";
import { formatMs } from "./text.ts";

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
