import { toAddressSet } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { type NodePortAddressRule, resolveNodePortAddresses, servesNodePorts } from "./node-port-addresses.ts";

const local = toAddressSet(["127.0.0.1", "10.0.0.1", "192.0.2.1", "::1", "fe80::1", "fd00::1"]).set;
const ofNode = ["10.0.0.1", "192.0.2.1", "fd00::1"];
const inside = (...cidrs: readonly string[]): NodePortAddressRule => ({ kind: "cidrs", cidrs });
const primary: NodePortAddressRule = { kind: "primary" };

interface Case {
  readonly name: string;
  readonly rule: NodePortAddressRule;
  readonly ofNode?: readonly string[] | "unknown";
  readonly v4: "all" | readonly string[];
  readonly v6: "all" | readonly string[];
}

test.each<Case>([
  { name: "no CIDR means all addresses", rule: inside(), v4: "all", v6: "all" },
  {
    name: "CIDRs choose in their family, and the other family has all",
    rule: inside("10.0.0.0/8"),
    v4: ["10.0.0.1"],
    v6: "all",
  },
  {
    name: "CIDRs of both families choose in both",
    rule: inside("192.0.2.0/24", "fd00::/8"),
    v4: ["192.0.2.1"],
    v6: ["fd00::1"],
  },
  {
    name: "a CIDR of length 0 means all, whatever the others are",
    rule: inside("10.0.0.0/8", "0.0.0.0/0", "::/0"),
    v4: "all",
    v6: "all",
  },
  { name: "a CIDR without a local address leaves none", rule: inside("172.16.0.0/12"), v4: [], v6: "all" },
  {
    name: "loopback addresses can be chosen",
    rule: inside("127.0.0.0/8", "::1/128"),
    v4: ["127.0.0.1"],
    v6: ["::1"],
  },
  { name: "primary is the Node's first address of each family", rule: primary, v4: ["10.0.0.1"], v6: ["fd00::1"] },
  { name: "a family without a primary has all", rule: primary, ofNode: ["10.0.0.1"], v4: ["10.0.0.1"], v6: "all" },
  { name: "an unknown Node has no primary", rule: primary, ofNode: "unknown", v4: [], v6: [] },
  { name: "a loopback address is not a primary", rule: primary, ofNode: ["127.0.0.1"], v4: "all", v6: "all" },
])("$name", ({ rule, v4, v6, ...parts }) => {
  const addresses = { local, ofNode: parts.ofNode === "unknown" ? undefined : (parts.ofNode ?? ofNode) };
  for (const [family, expected] of [["v4", v4] as const, ["v6", v6] as const]) {
    const chosen = resolveNodePortAddresses(rule, family, addresses);
    expect(chosen.kind === "all" ? "all" : chosen.addresses, family).toEqual(expected);
  }
});

test("an address that is not local serves no node port, whatever the rule", () => {
  expect(servesNodePorts("10.0.0.1", { kind: "all" }, local.v4)).toBe(true);
  expect(servesNodePorts("8.8.8.8", { kind: "all" }, local.v4)).toBe(false);
  expect(servesNodePorts("10.0.0.1", { kind: "listed", addresses: ["192.0.2.1"] }, local.v4)).toBe(false);
});
