import { type Family, toAddressSet } from "@kpng/model/address.ts";
import { view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import {
  type NodeFacts,
  type NodePortAddressRule,
  type ProxySettings,
  planNode,
  resolveNodePortAddresses,
  selectsAddress,
} from "./plan-node.ts";
import type { NodePlan } from "./service-plan.ts";

const defaults: ProxySettings = {
  isMasqueradeAll: false,
  detectLocalMode: "ClusterCIDR",
  clusterCIDRs: [],
  podBridgeInterface: "",
  podInterfaceNamePrefix: "",
  isLoopbackNodePorts: true,
  nodePortAddresses: { kind: "cidrs", cidrs: [] },
};
const facts: NodeFacts = {
  node: view([], {
    addresses: ["203.0.113.7", "192.0.2.1", "2001:db8::1"],
    podCIDRs: ["fd00:1::/64", "10.1.1.0/24"],
    serviceCIDRs: ["10.96.0.0/16", "fd00:96::/112"],
  }).node,
  localAddresses: { v4: ["192.0.2.1", "127.0.0.1", "10.1.0.1"], v6: ["2001:db8::1", "::1", "fe80::1"] },
};
const everywhere = { kind: "cidrs", cidrs: ["128.0.0.0/1", "0.0.0.0/1", "8000::/1", "::/1"] } as const;

interface Row {
  readonly name: string;
  readonly family?: Family;
  readonly settings: Partial<ProxySettings>;
  readonly facts?: Partial<NodeFacts>;
  readonly plan: Partial<NodePlan>;
}

test.each<Row>([
  {
    name: "by default every address serves node ports, 127.0.0.1 included",
    settings: {},
    plan: { nodePortAddresses: "all", isLoopbackNodePorts: true },
  },
  { name: "IPv6 has no node ports on ::1", family: "v6", settings: {}, plan: { isLoopbackNodePorts: false } },
  {
    name: "listed addresses are ascending, 127.0.0.1 included",
    settings: { nodePortAddresses: everywhere },
    plan: { nodePortAddresses: ["10.1.0.1", "127.0.0.1", "192.0.2.1"] },
  },
  {
    name: "127.0.0.1 is left out if node ports are not served on loopback addresses",
    settings: { nodePortAddresses: everywhere, isLoopbackNodePorts: false },
    plan: { nodePortAddresses: ["10.1.0.1", "192.0.2.1"] },
  },
  {
    name: "::1 and link-local addresses are left out",
    family: "v6",
    settings: { nodePortAddresses: everywhere },
    plan: { nodePortAddresses: ["2001:db8::1"] },
  },
  { name: "the first address of the family is the node's", settings: {}, plan: { nodeAddress: "203.0.113.7" } },
  {
    name: "a node without an address has none",
    settings: {},
    facts: { node: undefined },
    plan: { nodeAddress: undefined },
  },
  {
    name: "service CIDRs are those of the family",
    family: "v6",
    settings: {},
    plan: { serviceCIDRs: ["fd00:96::/112"] },
  },
  {
    name: "mode ClusterCIDR recognizes pods by the first CIDR of the family",
    family: "v6",
    settings: { clusterCIDRs: ["10.1.0.0/16", "fd00:1::7/32", "fd00:2::/32"] },
    plan: { podTraffic: { kind: "source", cidr: "fd00:1::/32" } },
  },
  {
    name: "mode ClusterCIDR without a CIDR of the family cannot recognize pods",
    settings: { clusterCIDRs: ["fd00:1::/32"] },
    plan: { podTraffic: undefined },
  },
])("$name", ({ family = "v4", settings, plan, ...parts }) => {
  expect(planNode({ ...defaults, ...settings }, family, { ...facts, ...parts.facts })).toMatchObject(plan);
});

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
  expect(selectsAddress("10.0.0.1", { kind: "all" }, local.v4)).toBe(true);
  expect(selectsAddress("8.8.8.8", { kind: "all" }, local.v4)).toBe(false);
  expect(selectsAddress("10.0.0.1", { kind: "listed", addresses: ["192.0.2.1"] }, local.v4)).toBe(false);
});
