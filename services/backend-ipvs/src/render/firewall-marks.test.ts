import { expect, test } from "vitest";
import { FirewallMarks, familyOfMark, isMarkOf, isUdpMark, markRange } from "./firewall-marks.ts";

test("a mark tells family, protocol and instance, and is the same in every run", () => {
  const port = { name: "ns/web:dns", protocol: "UDP" } as const;
  const mark = new FirewallMarks(0x6b).markOf("v6", port, true);
  expect(new FirewallMarks(0x6b).markOf("v6", port, true)).toBe(mark);
  expect([familyOfMark(mark), isUdpMark(mark), isMarkOf(0x6b, mark, "v6")]).toEqual(["v6", true, true]);
  expect([isMarkOf(0x6b, mark, "v4"), isMarkOf(0x70, mark, "v6"), isMarkOf(0x6b, 0x4000, "v4")]).toEqual([
    false,
    false,
    false,
  ]);
});

test("20 000 Service ports have different marks", () => {
  const marks = new FirewallMarks(markRange(""));
  const all = Array.from({ length: 20_000 }, (_, at) =>
    marks.markOf("v4", { name: `ns/${at}`, protocol: "TCP" }, false),
  );
  expect(new Set(all).size).toBe(20_000);
});
