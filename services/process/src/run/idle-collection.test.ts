import { expect, test } from "vitest";
import { isWorthCollecting } from "./idle-collection.ts";

const mebibyte = 1_024 * 1_024;

test.each([
  {
    when: "the process is idle and holds a quarter more than before the load",
    utilization: 0.01,
    bytes: 126,
    is: true,
  },
  { when: "the process is busy: it allocates, so V8 collects by itself", utilization: 0.05, bytes: 200, is: false },
  { when: "there is little to free", utilization: 0.01, bytes: 124, is: false },
])("an idle collection is worth $is when $when", ({ utilization, bytes, is }) => {
  expect(isWorthCollecting({ utilization, bytes: bytes * mebibyte, liveBytes: 100 * mebibyte })).toBe(is);
});

test("a small process needs 8 MiB of garbage", () => {
  const state = { utilization: 0, liveBytes: 10 * mebibyte };
  expect(isWorthCollecting({ ...state, bytes: 17 * mebibyte })).toBe(false);
  expect(isWorthCollecting({ ...state, bytes: 19 * mebibyte })).toBe(true);
});
