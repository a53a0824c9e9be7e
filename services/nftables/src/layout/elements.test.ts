import { numberBytes } from "@kpng/model/byte-text.ts";
import { expect, test } from "vitest";
import { addressBytes, portBytes, protocolBytes } from "./elements.ts";
import { formatElement } from "./format-element.ts";

test.each([
  [
    "v4",
    "frontends",
    addressBytes("10.96.0.1") + protocolBytes("TCP") + portBytes(80),
    numberBytes(0x4000_200a),
    "frontends { 10.96.0.1 . tcp . 80 : 4000:200a }",
  ],
  [
    "v6",
    "frontends",
    addressBytes("fd00::1") + protocolBytes("UDP") + portBytes(53),
    numberBytes(0x200a),
    "frontends { fd00::1 . udp . 53 : 0:200a }",
  ],
  [
    "v4",
    "nodeports",
    protocolBytes("SCTP") + portBytes(30_080),
    numberBytes(0x4000_2001),
    "nodeports { sctp . 30080 : 4000:2001 }",
  ],
  [
    "v4",
    "slots",
    numberBytes(0x2000) + numberBytes(3),
    addressBytes("10.1.0.1") + portBytes(8080),
    "slots { 0:2000 . 3 : 10.1.0.1 . 8080 }",
  ],
  ["v6", "hairpin", addressBytes("fd00::1") + addressBytes("fd00::1"), "", "hairpin { fd00::1 . fd00::1 }"],
  ["v4", "picks", numberBytes(7), "pick_7", "picks { 0:7 : goto pick_7 }"],
  ["v4", "sticky_counts", numberBytes(0x2000), "sticky_pick_2", "sticky_counts { 0:2000 : jump sticky_pick_2 }"],
] as const)("%s %s is formatted as nft prints it", (family, set, key, value, text) => {
  expect(formatElement(family, set, key, value)).toBe(text);
});

test("without a value, the key alone is formatted", () => {
  expect(formatElement("v4", "picks", numberBytes(7), undefined)).toBe("picks { 0:7 }");
});

test("bytes of another type are an error", () => {
  expect(() => formatElement("v6", "cluster_ips", addressBytes("10.96.0.1"), "")).toThrow(RangeError);
});
