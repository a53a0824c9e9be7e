import { type AddressSet, type Family, isIn, parseAddress, parseCidr } from "@kpng/model/address.ts";
import type { ViewNode } from "@kpng/model/node-view.ts";
import type { NodePlan, PodTraffic } from "./service-plan.ts";

/**
 * How pods of this node are recognized; the option `--detect-local-mode`. Source: kube-proxy LocalMode.
 */
export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

/** All values of {@link DetectLocalMode}, for the option. */
export const detectLocalModes: readonly DetectLocalMode[] = [
  "ClusterCIDR",
  "NodeCIDR",
  "BridgeInterface",
  "InterfaceNamePrefix",
];

/** The administrator's settings that every service proxy has, for both families. */
export interface ProxySettings {
  readonly isMasqueradeAll: boolean;
  readonly detectLocalMode: DetectLocalMode;
  /** CIDRs of all pods of the cluster, for ClusterCIDR. As in kube-proxy, the first of each family is used. */
  readonly clusterCIDRs: readonly string[];
  /** Name of the bridge, for BridgeInterface; never empty then. */
  readonly podBridgeInterface: string;
  /** Prefix of the pods' interfaces, for InterfaceNamePrefix; never empty then. */
  readonly podInterfaceNamePrefix: string;
  /** Serve node ports on 127.0.0.0/8, for proxies that can; IPv4 only. */
  readonly isLoopbackNodePorts: boolean;
  readonly nodePortAddresses: NodePortAddressRule;
}

/** The state of the node that a plan depends on. */
export interface NodeFacts {
  /** The Node in the view; undefined if the view has none. */
  readonly node: ViewNode | undefined;
  /** Addresses of the interfaces. */
  readonly localAddresses: AddressSet;
}

/**
 * Returns the part of all plans of one family that is the same for all Services. Pure.
 */
export function planNode(settings: ProxySettings, family: Family, { node, localAddresses }: NodeFacts): NodePlan {
  const isLoopbackNodePorts = family === "v4" && settings.isLoopbackNodePorts;
  const addresses = { local: localAddresses, ofNode: node?.addresses };
  const chosen = resolveNodePortAddresses(settings.nodePortAddresses, family, addresses);
  // A link-local address needs a zone, which rules cannot name. With "all", the kernel's match of local addresses decides.
  const isServed = (address: string): boolean =>
    isLoopback(address) ? isLoopbackNodePorts : !address.startsWith("fe80:");
  return {
    family,
    podTraffic: podTraffic(settings, node, family),
    isMasqueradeAll: settings.isMasqueradeAll,
    nodePortAddresses: chosen.kind === "all" ? "all" : chosen.addresses.filter(isServed).toSorted(),
    isLoopbackNodePorts,
    nodeAddress: nodeAddress(node, family),
    serviceCIDRs: (node?.serviceCIDRs ?? []).filter((cidr) => cidr.includes(":") === (family === "v6")),
  };
}

/** Returns how packets of pods are recognized; undefined if there is no CIDR of the family. */
function podTraffic(settings: ProxySettings, node: ViewNode | undefined, family: Family): PodTraffic | undefined {
  switch (settings.detectLocalMode) {
    case "ClusterCIDR":
      return fromFirst(settings.clusterCIDRs, family);
    case "NodeCIDR":
      return fromFirst(node?.podCIDRs ?? [], family);
    case "BridgeInterface":
      return { kind: "interface", name: settings.podBridgeInterface };
    case "InterfaceNamePrefix":
      return { kind: "interfacePrefix", prefix: settings.podInterfaceNamePrefix };
  }
}

function fromFirst(cidrs: readonly string[], family: Family): PodTraffic | undefined {
  const first = cidrs.map(parseCidr).find((cidr) => cidr?.family === family);
  return first === undefined ? undefined : { kind: "source", cidr: first.cidr };
}

/** The Node's address of a family; internal addresses come first. */
export function nodeAddress(node: Pick<ViewNode, "addresses"> | undefined, family: Family): string | undefined {
  return node?.addresses.map(parseAddress).find((address) => address?.family === family)?.address;
}

/**
 * The administrator's choice of the addresses that serve node ports. `parseNodePortAddresses` of backend-kit reads it
 * from the option `--nodeport-addresses`.
 */
export type NodePortAddressRule =
  /** Local addresses in these CIDRs, of both families; none means all. */
  | { readonly kind: "cidrs"; readonly cidrs: readonly string[] }
  /** The first address of each family that the cluster has for the Node. */
  | { readonly kind: "primary" };

/** The addresses of one family of one node that the choice leads to. */
export type NodePortAddresses =
  /** Every local address, also one that is added later. */
  { readonly kind: "all" } | { readonly kind: "listed"; readonly addresses: readonly string[] };

/** The addresses that a node has. */
export interface NodeAddresses {
  /** Addresses of its interfaces. */
  readonly local: AddressSet;
  /** ViewNode.addresses: internal addresses first. Undefined if the Node is unknown. */
  readonly ofNode: readonly string[] | undefined;
}

/**
 * Returns the addresses of one family that a rule selects on a node.
 *
 * | Rule | Selects |
 * |---|---|
 * | CIDRs, none of the family | all addresses of the family, even if the other family has a CIDR |
 * | CIDRs, one of length 0 | all |
 * | `primary` | the Node's first address of the family; all if there is none, or if it is a loopback address |
 * | `primary`, the Node is unknown | none: all would open node ports that the administrator closed |
 *
 * *Source:* kube-proxy `util/nodeport_addresses.go`, `cmd/kube-proxy/app/server.go`.
 *
 * Pure. Local addresses change while a node runs: resolve again at each sync.
 */
export function resolveNodePortAddresses(
  rule: NodePortAddressRule,
  family: Family,
  { local, ofNode }: NodeAddresses,
): NodePortAddresses {
  if (rule.kind === "primary" && ofNode === undefined) return { kind: "listed", addresses: [] };
  const cidrs = cidrsOf(rule, family, ofNode ?? []);
  if (cidrs.length === 0 || cidrs.some((cidr) => cidr.endsWith("/0"))) return { kind: "all" };
  return { kind: "listed", addresses: local[family].filter((address) => cidrs.some((cidr) => isIn(address, cidr))) };
}

/**
 * True if the rule selects `address`, which is canonical. Loopback and link-local addresses count, which `planNode`
 * leaves out: flows that began there under other settings are stale as well.
 */
export function servesNodePorts(address: string, chosen: NodePortAddresses, local: readonly string[]): boolean {
  return (chosen.kind === "all" ? local : chosen.addresses).includes(address);
}

function cidrsOf(rule: NodePortAddressRule, family: Family, ofNode: readonly string[]): readonly string[] {
  if (rule.kind === "cidrs") return rule.cidrs.filter((cidr) => cidr.includes(":") === (family === "v6"));
  const first = ofNode.map(parseAddress).find((parsed) => parsed?.family === family);
  if (first === undefined || isLoopback(first.address)) return [];
  return [`${first.address}/${family === "v4" ? 32 : 128}`];
}

/** True for 127.0.0.0/8 and ::1. The address is canonical. */
export function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.");
}
