import { expect, test } from "vitest";
import { parseNodePortAddresses } from "./node-port-addresses.ts";

test.each([
  { texts: [], rule: { kind: "cidrs", cidrs: [] } },
  { texts: ["10.1.2.3/8", "fd00::1/8"], rule: { kind: "cidrs", cidrs: ["10.0.0.0/8", "fd00::/8"] } },
  { texts: ["primary"], rule: { kind: "primary" } },
])("$texts is accepted, without host bits", ({ texts, rule }) => {
  expect(parseNodePortAddresses(texts)).toEqual(rule);
});

test.each([["primary", "10.0.0.0/8"], ["10.0.0.1"], ["eth0"]])("%s is refused", (...texts) => {
  expect(() => parseNodePortAddresses(texts)).toThrow("[BAD_OPTION]");
});
