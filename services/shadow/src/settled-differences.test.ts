import { expect, test } from "vitest";
import type { Difference } from "./difference.ts";
import { SettledDifferences } from "./settled-differences.ts";

const difference = (address: string, kpng = "no rule"): Difference => ({
  servicePort: "ns/web",
  family: "v4",
  addressKind: "cluster IP",
  protocol: "tcp",
  address,
  port: 80,
  sender: "node",
  source: "192.0.2.1",
  kubeProxy: ["refused"],
  kpng: [kpng],
});
const [a, b] = [difference("10.96.0.1"), difference("10.96.0.2")];

test("a difference is told once it has lasted, and once only", () => {
  const settled = new SettledDifferences(5_000);
  expect(settled.take([a], 0)).toEqual({ appeared: [], gone: [], present: [] });
  expect(settled.isSettling).toBe(true);
  expect(settled.take([a], 4_999).appeared).toEqual([]);
  expect(settled.take([a, b], 5_000)).toEqual({ appeared: [a], gone: [], present: [a] });
  expect(settled.take([a, b], 6_000)).toEqual({ appeared: [], gone: [], present: [a] });
  expect(settled.take([a, b], 10_000)).toEqual({ appeared: [b], gone: [], present: [a, b] });
  expect(settled.isSettling).toBe(false);
});

test("one that comes and goes, or changes, while a change spreads is not told", () => {
  const settled = new SettledDifferences(5_000);
  settled.take([a], 0);
  settled.take([], 3_000);
  expect(settled.take([a], 6_000).present).toEqual([]);
  expect(settled.take([difference("10.96.0.1", "dropped")], 12_000).present).toEqual([]);
});

test("one that is gone is told to be at once", () => {
  const settled = new SettledDifferences(0);
  expect(settled.take([a, b], 0).appeared).toEqual([a, b]);
  expect(settled.take([b], 1)).toEqual({ appeared: [], gone: [a], present: [b] });
});
