import { type AddressSet, type Family, isIn, isLinkLocal, parseAddress, parseCidr } from "@kpng/model/address.ts";
import type { ViewNode } from "@kpng/model/node-view.ts";
import type { NodePlan, PodTraffic } from "./service-plan.ts";

/** How this node's pods are recognized (option `--detect-local-mode`). Source: kube-proxy LocalMode. */
export const detectLocalModes = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"] as const;

/** Administrator's settings that every service proxy has, for both families. */
export interface ProxySettings {
  readonly isMasqueradeAll: boolean;
  readonly detectLocalMode: (typeof detectLocalModes)[number];
  /** CIDRs of all pods in the cluster, for ClusterCIDR. As in kube-proxy, the first CIDR of each family is used. */
  readonly clusterCIDRs: readonly string[];
  /** Name of the bridge, for BridgeInterface; not empty in that mode. */
  readonly podBridgeInterface: string;
  /** Name prefix of the pods' interfaces, for InterfaceNamePrefix; not empty in that mode. */
  readonly podInterfaceNamePrefix: string;
  /** True to serve node ports on 127.0.0.0/8, for proxies that can; IPv4 only. */
  readonly isLoopbackNodePorts: boolean;
  readonly nodePortAddresses: NodePortAddressRule;
}

/** The state of the node that a plan depends on. */
export interface NodeFacts {
  /** The Node in the view; undefined if the view has none. */
  readonly node: ViewNode | undefined;
  /** Addresses of the node's interfaces. */
  readonly localAddresses: AddressSet;
}

/** Returns the part of the plans that is the same for all Services of one family. Pure. */
export function planNode(settings: ProxySettings, family: Family, { node, localAddresses }: NodeFacts): NodePlan {
  const isLoopbackNodePorts = family === "v4" && settings.isLoopbackNodePorts;
  const addresses = { local: localAddresses, ofNode: node?.addresses };
  const chosen = resolveNodePortAddresses(settings.nodePortAddresses, family, addresses);
  // Leave out link-local addresses: they need a zone, which rules cannot contain. With "all", the kernel's match for
  // local addresses decides.
  const isServed = (address: string): boolean => (isLoopback(address) ? isLoopbackNodePorts : !isLinkLocal(address));
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

/** Returns how packets from pods are recognized; undefined if there is no CIDR of the family. */
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

/** Returns the Node's address of a family; internal addresses come first. */
export function nodeAddress(node: Pick<ViewNode, "addresses"> | undefined, family: Family): string | undefined {
  return node?.addresses.map(parseAddress).find((address) => address?.family === family)?.address;
}

/**
 * The administrator's choice of the addresses that serve node ports. `parseNodePortAddresses` in backend-kit reads it
 * from the option `--nodeport-addresses`.
 */
export type NodePortAddressRule =
  /** Local addresses of both families in these CIDRs; an empty list means all local addresses. */
  | { readonly kind: "cidrs"; readonly cidrs: readonly string[] }
  /** The Node's first address of each family, as known to the cluster. */
  | { readonly kind: "primary" };

/** The addresses of one family on one node that result from the rule. */
export type NodePortAddresses =
  /** Every local address, including addresses that are added later. */
  { readonly kind: "all" } | { readonly kind: "listed"; readonly addresses: readonly string[] };

/** The addresses that a node has. */
export interface NodeAddresses {
  /** Addresses of its interfaces. */
  readonly local: AddressSet;
  /** `ViewNode.addresses`, with internal addresses first. Undefined if the Node is unknown. */
  readonly ofNode: readonly string[] | undefined;
}

/**
 * Returns the addresses of one family that a rule selects on a node.
 *
 * | Rule | Selects |
 * |---|---|
 * | CIDRs, but none of this family | all addresses of the family, even if the other family has a CIDR |
 * | CIDRs, at least one with length 0 | all |
 * | `primary` | the Node's first address of the family; all if there is none, or if it is a loopback address |
 * | `primary`, but the Node is unknown | none, because "all" would open node ports that the administrator closed |
 *
 * *Source:* kube-proxy `util/nodeport_addresses.go`, `cmd/kube-proxy/app/server.go`.
 *
 * Pure. Local addresses change while a node runs, so the rule must be resolved again at each sync.
 */
export function resolveNodePortAddresses(
  rule: NodePortAddressRule,
  family: Family,
  { local, ofNode }: NodeAddresses,
): NodePortAddresses {
  if (rule.kind === "primary" && ofNode === undefined) return { kind: "listed", addresses: [] };
  const cidrs = cidrsOf(rule, family, nodeAddress({ addresses: ofNode ?? [] }, family));
  if (cidrs.length === 0 || cidrs.some((cidr) => cidr.endsWith("/0"))) return { kind: "all" };
  return { kind: "listed", addresses: local[family].filter((address) => cidrs.some((cidr) => isIn(address, cidr))) };
}

/**
 * True if the rule selects `address`, which must be canonical. Unlike in `planNode`, loopback and link-local addresses
 * count, because flows that began there under other settings are stale as well.
 */
export function selectsAddress(address: string, chosen: NodePortAddresses, local: readonly string[]): boolean {
  return (chosen.kind === "all" ? local : chosen.addresses).includes(address);
}

function cidrsOf(rule: NodePortAddressRule, family: Family, primary: string | undefined): readonly string[] {
  if (rule.kind === "cidrs") return rule.cidrs.filter((cidr) => cidr.includes(":") === (family === "v6"));
  return primary === undefined || isLoopback(primary) ? [] : [`${primary}/${family === "v4" ? 32 : 128}`];
}

/** True for 127.0.0.0/8 and ::1. The address must be canonical. */
export function isLoopback(address: string): boolean {
  return address === "::1" || address.startsWith("127.");
}
