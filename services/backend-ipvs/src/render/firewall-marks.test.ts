import { expect, test } from "vitest";
import { FirewallMarks, familyOfMark, isUdpMark, markRange } from "./firewall-marks.ts";

const tcp = (name: string) => ({ name, protocol: "TCP" }) as const;

test("a mark tells family and protocol, and is the same in every run", () => {
  const port = { name: "ns/web:dns", protocol: "UDP" } as const;
  const mark = new FirewallMarks(0x6b).markOf("v6", port, true);
  expect(new FirewallMarks(0x6b).markOf("v6", port, true)).toBe(mark);
  expect([familyOfMark(mark), isUdpMark(mark), mark >>> 24]).toEqual(["v6", true, 0x6b]);
});

test("20 000 Service ports have different marks", () => {
  const marks = new FirewallMarks(markRange(""));
  const all = Array.from({ length: 20_000 }, (_, at) => marks.markOf("v4", tcp(`ns/${at}`), false));
  expect(new Set(all).size).toBe(20_000);
});

test("the marks of a released Service can be taken again, and a mark too many is an error", () => {
  const marks = new FirewallMarks(0x6b, 2);
  for (const name of ["ns/a:http", "ns/a:https"]) marks.markOf("v4", tcp(name), false);
  expect(() => marks.markOf("v4", tcp("ns/b"), false)).toThrow("all 2 firewall marks are taken");
  marks.release("ns/a");
  expect(marks.markOf("v4", tcp("ns/b"), false)).not.toBe(marks.markOf("v4", tcp("ns/c:http"), false));
});
