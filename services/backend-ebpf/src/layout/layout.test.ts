import { describe, expect, test } from "vitest";
import { addressBytes, describeKey, familyOf, frontendKey, readAddress } from "./layout.ts";

describe("keys of maps", () => {
  test.each([
    { address: "10.96.0.1", family: "v4", hex: "00000000000000000000ffff0a600001" },
    { address: "255.255.255.255", family: "v4", hex: "00000000000000000000ffffffffffff" },
    { address: "fd00:96::1", family: "v6", hex: "fd000096000000000000000000000001" },
    { address: "::", family: "v6", hex: "00000000000000000000000000000000" },
  ])("the bytes of $address have its family and can be read back", ({ address, family, hex }) => {
    const bytes = addressBytes(address);
    expect([bytes.toString("hex"), familyOf(bytes), readAddress(bytes)]).toEqual([hex, family, address]);
  });

  test("a key names the frontend, and node ports of the families differ", () => {
    const nodePort = { address: undefined, port: 30_053 };
    expect([
      describeKey(frontendKey("v4", { address: "10.96.0.1", port: 80 })),
      describeKey(frontendKey("v6", { address: "fd00::1", port: 443 })),
      describeKey(frontendKey("v4", nodePort)),
    ]).toEqual(["TCP 10.96.0.1:80", "TCP [fd00::1]:443", "TCP *:30053"]);
    expect(frontendKey("v4", nodePort)).not.toEqual(frontendKey("v6", nodePort));
  });
});
