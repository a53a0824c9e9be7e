import { type Family, isIn } from "@kpng/model/address.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";

/**
 * First packet of a connection, as it reaches a node. A user describes it in `kpng explain`, `readPacket` decodes it,
 * and `explainPacket` follows it. Separate, because the decoder and all functions of this folder share the types.
 */
export interface Packet {
  readonly family: Family;
  readonly protocol: Protocol;
  readonly source: SourceKind;
  /** Undefined for an arbitrary sender of this kind. */
  readonly sourceAddress: string | undefined;
  readonly destination: string;
  readonly port: number;
}

/** Kind of sender, from the view of the node. */
export type SourceKind = "pod" | "node" | "outside";

/** Options of the node's proxy; see kpng.inspect.v1.ProxySettings. */
export interface ProxySettings {
  /** "unknown" if the proxy has none and cannot distinguish pods from other senders. */
  readonly clusterCIDRs: readonly string[] | "unknown";
  readonly isMasqueradeAll: boolean;
  /** CIDRs of the node addresses that accept node ports; empty for all addresses. */
  readonly nodePortAddresses: readonly string[];
  readonly isLocalhostNodePorts: boolean;
  /** Addresses of the node in addition to its status. */
  readonly moreNodeAddresses: readonly string[];
}

/** Returns the known addresses of a node. */
export function nodeAddresses(node: Node | undefined, settings: ProxySettings): readonly string[] {
  return [...(node?.addresses ?? []), ...settings.moreNodeAddresses];
}

/** Classifies a sender by its address. Addresses in the cluster CIDRs are pods. */
export function sourceKindOf(address: string, own: readonly string[], settings: ProxySettings): SourceKind {
  if (own.includes(address) || isLoopback(address)) return "node";
  return isInAny(address, settings.clusterCIDRs) ? "pod" : "outside";
}

/** True if the proxy treats the sender as part of the cluster, so that its connections are not masqueraded. */
export function countsAsLocal({ source, sourceAddress }: Packet, settings: ProxySettings): boolean {
  if (settings.clusterCIDRs === "unknown") return false;
  return sourceAddress === undefined ? source === "pod" : isInAny(sourceAddress, settings.clusterCIDRs);
}

function isInAny(address: string, cidrs: ProxySettings["clusterCIDRs"]): boolean {
  return cidrs !== "unknown" && cidrs.some((cidr) => isIn(address, cidr));
}
