import { expect, test } from "vitest";
import { proxyHeader } from "./proxy-header.ts";

const v4 = { clientAddress: "192.0.2.7", clientPort: 40_000, address: "10.96.0.1", port: 80 };
const v6 = { clientAddress: "2001:db8::1:7", clientPort: 40_000, address: "fd00::", port: 443 };

test("version 1 is a line of text", () => {
  expect(String(proxyHeader("v1", v4))).toBe("PROXY TCP4 192.0.2.7 10.96.0.1 40000 80\r\n");
  expect(String(proxyHeader("v1", v6))).toBe("PROXY TCP6 2001:db8::1:7 fd00:: 40000 443\r\n");
});

test("version 2 is binary", () => {
  expect(proxyHeader("v2", v4).toString("hex")).toBe(
    `0d0a0d0a000d0a515549540a${"21"}${"11"}000c${"c0000207"}${"0a600001"}${"9c40"}${"0050"}`,
  );
  expect(proxyHeader("v2", v6).toString("hex")).toBe(
    `0d0a0d0a000d0a515549540a${"21"}${"21"}0024${"20010db8000000000000000000010007"}${`fd00${"0".repeat(28)}`}9c4001bb`,
  );
});
