import { expect, test } from "vitest";
import { pickInside, pickStranger } from "./pick-address.ts";

test.each([
  { name: "the last one that a host may have", cidr: "10.1.0.0/16", others: [], picked: "10.1.255.254" },
  { name: "one that no narrower range has", cidr: "10.0.0.0/8", others: ["10.255.0.0/16"], picked: "10.128.0.1" },
  { name: "itself of a single address", cidr: "192.0.2.7/32", others: [], picked: "192.0.2.7" },
  { name: "the first of two", cidr: "192.0.2.6/31", others: [], picked: "192.0.2.6" },
  { name: "IPv6", cidr: "fd00:10::/64", others: [], picked: "fd00:10::ffff:ffff:ffff:fffe" },
  { name: "any if others have all", cidr: "10.1.0.0/24", others: ["10.0.0.0/8"], picked: "10.1.0.254" },
])("of a range it picks $name", ({ cidr, others, picked }) => {
  expect(pickInside(cidr, others)).toBe(picked);
});

test("a stranger is in no range; where the ranges have all there is none", () => {
  expect(pickStranger("v4", ["10.0.0.0/8"])).toBe("203.0.113.77");
  expect(pickStranger("v4", ["203.0.113.0/24", "198.51.100.0/24"])).toBe("192.0.2.77");
  expect(pickStranger("v4", ["0.0.0.0/0"])).toBeUndefined();
  expect(pickStranger("v6", [])).toBe("2001:db8:7777::77");
});
