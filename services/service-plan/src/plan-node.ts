import { type AddressSet, type Family, parseAddress, parseCidr } from "@kpng/model/address.ts";
import type { ViewNode } from "@kpng/model/node-view.ts";
import { isLoopback, type NodePortAddressRule, resolveNodePortAddresses } from "./node-port-addresses.ts";
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
  /** CIDRs of all pods of the cluster, for ClusterCIDR; only the first of each family is used. */
  readonly clusterCIDRs: readonly string[];
  /** Name of the bridge, for BridgeInterface. */
  readonly podBridgeInterface: string;
  /** For InterfaceNamePrefix. */
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

/** Returns how packets of pods are recognized; undefined if the settings or the Node lack what the mode needs. */
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
