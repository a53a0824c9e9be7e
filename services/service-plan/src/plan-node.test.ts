import type { Family } from "@kpng/model/address.ts";
import { view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { type NodeFacts, type ProxySettings, planNode } from "./plan-node.ts";
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
  {
    name: "mode NodeCIDR recognizes pods by the Node's pod CIDR",
    settings: { detectLocalMode: "NodeCIDR" },
    plan: { podTraffic: { kind: "source", cidr: "10.1.1.0/24" } },
  },
  {
    name: "mode BridgeInterface recognizes pods by the interface",
    settings: { detectLocalMode: "BridgeInterface", podBridgeInterface: "cbr0" },
    plan: { podTraffic: { kind: "interface", name: "cbr0" } },
  },
  {
    name: "mode InterfaceNamePrefix recognizes pods by the beginning of the interface's name",
    settings: { detectLocalMode: "InterfaceNamePrefix", podInterfaceNamePrefix: "veth" },
    plan: { podTraffic: { kind: "interfacePrefix", prefix: "veth" } },
  },
])("$name", ({ family = "v4", settings, plan, ...parts }) => {
  expect(planNode({ ...defaults, ...settings }, family, { ...facts, ...parts.facts })).toMatchObject(plan);
});
