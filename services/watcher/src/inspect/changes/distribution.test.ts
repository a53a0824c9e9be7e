import { expect, test } from "vitest";
import { Distribution } from "./distribution.ts";

function of(times: readonly number[]): Distribution {
  const distribution = new Distribution();
  for (const ms of times) distribution.add(ms);
  return distribution;
}

test("percentiles are accurate to 15 %, and the maximum is exact", () => {
  const times = Array.from({ length: 10_000 }, (_, index) => 0.06 * 1.001 ** index);
  const spread = of(times);
  for (const part of [0.01, 0.5, 0.9, 0.99, 1]) {
    const exact = times[Math.ceil(times.length * part) - 1] ?? 0;
    expect(Math.abs(spread.percentileMs(part) / exact - 1), `${part}`).toBeLessThanOrEqual(0.15);
  }
  expect(spread.maxMs).toBe(times.at(-1));
});

test("a percentile never exceeds the maximum", () => {
  expect(of([100]).percentileMs(0.5)).toBeLessThanOrEqual(100);
});

test("no measurements, zero, negative durations and days are handled", () => {
  expect(of([]).percentileMs(0.5)).toBe(0);
  const odd = of([0, -5, 1e12]);
  expect(odd.count).toBe(3);
  expect(odd.percentileMs(0.5)).toBeLessThan(0.06);
  expect(odd.maxMs).toBe(1e12);
});
