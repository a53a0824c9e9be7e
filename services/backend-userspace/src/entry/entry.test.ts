import { expect, test } from "vitest";
import { localPorts } from "./entry.ts";

test("all ports of a range are tried, from one that follows from the name", () => {
  const range = { first: 20_000, last: 20_199 };
  const ports = [...localPorts("TCP 10.96.0.1 80", range)];
  expect(ports.toSorted((one, other) => one - other)).toEqual(Array.from({ length: 200 }, (_, at) => 20_000 + at));
  expect([...localPorts("TCP 10.96.0.1 80", range)]).toEqual(ports);
  expect([...localPorts("TCP 10.96.0.2 80", range)][0]).not.toBe(ports[0]);
  const { includes } = localPorts("", range);
  expect([19_999, 20_000, 20_199, 20_200].map(includes)).toEqual([false, true, true, false]);
});
