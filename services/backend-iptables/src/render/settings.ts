import type { Family } from "@kpng/model/address.ts";
import { parseAddress, parseCidr } from "@kpng/model/address.ts";
import type { ViewNode } from "@kpng/model/node-view.ts";
import type { NodePortAddressRule } from "@kpng/service-plan/node-port-addresses.ts";
import type { ChainNames } from "./chain-names.ts";
import type { LocalTraffic } from "./render-options.ts";

/** How pods of this node are told from others. Source: kube-proxy LocalMode. */
export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

export const detectLocalModes: readonly DetectLocalMode[] = [
  "ClusterCIDR",
  "NodeCIDR",
  "BridgeInterface",
  "InterfaceNamePrefix",
];

/** What an administrator says, for both families. */
export interface Settings {
  readonly names: ChainNames;
  /** 0 to 31. */
  readonly masqueradeBit: number;
  readonly isMasqueradeAll: boolean;
  readonly detectLocalMode: DetectLocalMode;
  /** Pods' addresses in the whole cluster, of either family; the first of a family counts. */
  readonly clusterCIDRs: readonly string[];
  readonly podBridgeInterface: string;
  readonly podInterfaceNamePrefix: string;
  readonly isLocalhostNodePorts: boolean;
  readonly nodePortAddresses: NodePortAddressRule;
}

/** Returns how pods are told from others in one family; undefined if the CIDR for it is not known. */
export function localTraffic(settings: Settings, node: ViewNode | undefined, family: Family): LocalTraffic | undefined {
  switch (settings.detectLocalMode) {
    case "ClusterCIDR":
      return bySource(settings.clusterCIDRs, family);
    case "NodeCIDR":
      return bySource(node?.podCIDRs ?? [], family);
    case "BridgeInterface":
      return { kind: "interface", pattern: settings.podBridgeInterface };
    case "InterfaceNamePrefix":
      return { kind: "interface", pattern: `${settings.podInterfaceNamePrefix}+` };
  }
}

function bySource(cidrs: readonly string[], family: Family): LocalTraffic | undefined {
  const first = cidrs.map(parseCidr).find((cidr) => cidr?.family === family);
  return first === undefined ? undefined : { kind: "source", cidr: first.cidr };
}

/** The Node's address of a family; internal ones come first. */
export function nodeAddress(node: ViewNode | undefined, family: Family): string | undefined {
  return node?.addresses.map(parseAddress).find((address) => address?.family === family)?.address;
}
