import type { Family } from "@kpng/model/address.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { isInCidr } from "./in-cidr.ts";

/** Where a packet comes from, as the node sees it. */
export type SourceKind = "pod" | "node" | "outside";

/** A packet that reaches a node and begins a connection. */
export interface Packet {
  readonly family: Family;
  readonly protocol: Protocol;
  readonly source: SourceKind;
  /** Undefined for any sender of its kind. */
  readonly sourceAddress: string | undefined;
  readonly destination: string;
  readonly port: number;
}

/** How the node's proxy is set up; see kpng.inspect.v1.ProxySettings. */
export interface ProxySettings {
  /** "unknown" for none: pods are not told from anything else. */
  readonly clusterCIDRs: readonly string[] | "unknown";
  readonly isMasqueradeAll: boolean;
  /** CIDRs; empty for all addresses of the node. */
  readonly nodePortAddresses: readonly string[];
  readonly isLocalhostNodePorts: boolean;
  /** Beyond those of the Node's status. */
  readonly moreNodeAddresses: readonly string[];
}

/** The node's own addresses, as far as they are known. */
export function nodeAddresses(node: Node | undefined, settings: ProxySettings): readonly string[] {
  return [...(node?.addresses ?? []), ...settings.moreNodeAddresses];
}

/** What a sender is, by its address: pods are what the cluster's CIDRs hold. */
export function sourceKindOf(address: string, own: readonly string[], settings: ProxySettings): SourceKind {
  if (own.includes(address) || isInCidr(address, "127.0.0.0/8") || address === "::1") return "node";
  return isInAny(address, settings.clusterCIDRs) ? "pod" : "outside";
}

/** True if the proxy takes the sender for one of the cluster, whose connections need no masquerade. */
export function isTakenForLocal({ source, sourceAddress }: Packet, settings: ProxySettings): boolean {
  if (settings.clusterCIDRs === "unknown") return false;
  return sourceAddress === undefined ? source === "pod" : isInAny(sourceAddress, settings.clusterCIDRs);
}

function isInAny(address: string, cidrs: ProxySettings["clusterCIDRs"]): boolean {
  return cidrs !== "unknown" && cidrs.some((cidr) => isInCidr(address, cidr));
}
