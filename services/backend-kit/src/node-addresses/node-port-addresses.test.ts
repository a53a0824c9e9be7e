import { toAddressSet } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { readLocalAddresses } from "./local-addresses.ts";
import { parseNodePortAddresses, resolveNodePortAddresses, servesNodePorts } from "./node-port-addresses.ts";

const local = toAddressSet(["127.0.0.1", "10.0.0.1", "192.0.2.1", "::1", "fe80::1", "fd00::1"]).set;
const ofNode = ["10.0.0.1", "192.0.2.1", "fd00::1"];

interface Case {
  readonly name: string;
  readonly texts: readonly string[];
  readonly ofNode?: readonly string[];
  readonly v4: "all" | readonly string[];
  readonly v6: "all" | readonly string[];
}

test.each<Case>([
  { name: "nothing means all", texts: [], v4: "all", v6: "all" },
  { name: "CIDRs choose in their family, the other has all", texts: ["10.0.0.0/8"], v4: ["10.0.0.1"], v6: "all" },
  { name: "both families", texts: ["192.0.2.0/24", "fd00::/8"], v4: ["192.0.2.1"], v6: ["fd00::1"] },
  { name: "length 0 beats what else there is", texts: ["10.0.0.0/8", "0.0.0.0/0", "::/0"], v4: "all", v6: "all" },
  { name: "a CIDR in which there is nothing", texts: ["172.16.0.0/12"], v4: [], v6: "all" },
  { name: "loopback", texts: ["127.0.0.0/8", "::1/128"], v4: ["127.0.0.1"], v6: ["::1"] },
  { name: "host bits do not matter", texts: ["10.1.2.3/8"], v4: ["10.0.0.1"], v6: "all" },
  { name: "primary is the Node's first of each family", texts: ["primary"], v4: ["10.0.0.1"], v6: ["fd00::1"] },
  { name: "a family without a primary has all", texts: ["primary"], ofNode: ["10.0.0.1"], v4: ["10.0.0.1"], v6: "all" },
  { name: "a loopback address is no primary", texts: ["primary"], ofNode: ["127.0.0.1"], v4: "all", v6: "all" },
])("$name", ({ texts, v4, v6, ...parts }) => {
  const rule = parseNodePortAddresses(texts);
  const addresses = { local, ofNode: parts.ofNode ?? ofNode };
  for (const [family, expected] of [["v4", v4] as const, ["v6", v6] as const]) {
    const chosen = resolveNodePortAddresses(rule, family, addresses);
    expect(chosen.kind === "all" ? "all" : chosen.addresses, family).toEqual(expected);
  }
});

test.each([["primary", "10.0.0.0/8"], ["10.0.0.1"], ["eth0"]])("%s is refused", (...texts) => {
  expect(() => parseNodePortAddresses(texts)).toThrow("[BAD_OPTION]");
});

test("an address that is not local serves no node port, whatever the rule", () => {
  expect(servesNodePorts("10.0.0.1", { kind: "all" }, local.v4)).toBe(true);
  expect(servesNodePorts("8.8.8.8", { kind: "all" }, local.v4)).toBe(false);
  expect(servesNodePorts("10.0.0.1", { kind: "listed", addresses: ["192.0.2.1"] }, local.v4)).toBe(false);
});

test("this machine has its loopback address", () => {
  expect(readLocalAddresses().v4).toContain("127.0.0.1");
});
