import { expect, test } from "vitest";
import { isWorthCollecting } from "./memory.ts";

const mebibyte = 1_024 * 1_024;

test.each([
  {
    when: "the process is idle after a load and holds a quarter more than before",
    state: {},
    is: true,
  },
  { when: "the process is busy: it allocates, so V8 collects by itself", state: { utilization: 0.05 }, is: false },
  {
    when: "it was not busy since the last collection: single changes leave little",
    state: { wasBusy: false },
    is: false,
  },
  { when: "there is little to free", state: { bytes: 124 * mebibyte }, is: false },
])("an idle collection is worth $is when $when", ({ state, is }) => {
  const idle = { wasBusy: true, utilization: 0.01, bytes: 126 * mebibyte, liveBytes: 100 * mebibyte };
  expect(isWorthCollecting({ ...idle, ...state })).toBe(is);
});

test("a small process needs 8 MiB of garbage", () => {
  const state = { wasBusy: true, utilization: 0, liveBytes: 10 * mebibyte };
  expect(isWorthCollecting({ ...state, bytes: 17 * mebibyte })).toBe(false);
  expect(isWorthCollecting({ ...state, bytes: 19 * mebibyte })).toBe(true);
});
