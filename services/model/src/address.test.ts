import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { isIn, isLinkLocal, parseAddress, parseCidr, withoutDottedIPv6 } from "./address.ts";
import { IPSetSchema } from "./gen/localv1/api_pb.ts";
import { decodeAddresses } from "./wire/service-message.ts";

test.each([
  ["::10.96.0.1", undefined],
  ["::ffff:10.96.0.1", undefined],
  ["::ffff:a60:1", undefined],
  ["0:0:0:0:0:ffff:a60:1", undefined],
  ["64:ff9b::10.96.0.1", undefined],
  ["::a60:1", "::a60:1"],
  ["::ffff:1", "::ffff:1"],
  ["::ffff:0:a60:1", "::ffff:0:a60:1"],
  ["FD00:0:0::1", "fd00::1"],
])("the address %s is %s", (text, address) => {
  expect(parseAddress(text)?.address).toBe(address);
});

test.each([
  ["::10.0.0.0/104", undefined],
  ["::/0", "::/0"],
  ["fd00::1/64", "fd00::/64"],
  ["fd00::1/129", undefined],
  ["fe80::1%eth0/64", undefined],
  ["10.1.2.3/8", "10.0.0.0/8"],
  ["10.1.2.3/33", undefined],
  ["10.1.2.3", undefined],
])("the CIDR %s is %s", (text, cidr) => {
  expect(parseCidr(text)?.cidr).toBe(cidr);
});

test.each([
  { address: "10.1.2.3", cidr: "10.0.0.0/8", isInside: true },
  { address: "10.1.2.3", cidr: "10.1.2.3", isInside: true },
  { address: "10.1.2.3", cidr: "10.1.2.4/32", isInside: false },
  { address: "10.1.2.3", cidr: "::/0", isInside: false },
  { address: "10.1.2.3", cidr: "::ffff:a00:0/104", isInside: false },
  { address: "fd00::1", cidr: "::/0", isInside: true },
  { address: "fd00::1", cidr: "0.0.0.0/0", isInside: false },
])("that $address is in $cidr is $isInside", ({ address, cidr, isInside }) => {
  expect(isIn(address, cidr)).toBe(isInside);
});

test.each([
  { address: "fe80::1", expected: true },
  { address: "febf::1", expected: true },
  { address: "fec0::1", expected: false },
  { address: "fe8::1", expected: false },
  { address: "169.254.1.1", expected: false },
])("that $address needs a zone is $expected", ({ address, expected }) => {
  expect(isLinkLocal(address)).toBe(expected);
});

test.each([
  ["::10.96.0.1 . tcp . 80", "::a60:1 . tcp . 80"],
  ["10.96.0.1 . tcp . 80", "10.96.0.1 . tcp . 80"],
])("what tools print as %s is %s", (text, canonical) => {
  expect(withoutDottedIPv6(text)).toBe(canonical);
});

test("a message with an IPv4-mapped address is decoded without it", () => {
  const set = create(IPSetSchema, { V4: ["192.0.2.1"], V6: ["::ffff:10.96.0.1", "fd00::1"] });
  expect(decodeAddresses(set)).toEqual({ v4: ["192.0.2.1"], v6: ["fd00::1"] });
});
