import type { Frontend } from "./find-frontend.ts";
import { countsAsLocal, type Packet, type ProxySettings } from "./packet.ts";

/**
 * How traffic policies and masquerading apply to one packet, with the texts that explain it. `explainPacket` prints
 * these texts as steps.
 */
export interface PacketPolicy {
  /** Endpoints that the packet may use: all of the cluster, or those on this node. */
  readonly set: "cluster" | "local";
  /** True if the endpoint sees the node's address instead of the sender's, so that it replies through this node. */
  readonly isMasqueraded: boolean;
  readonly policyText: string;
  /** Reason for `isMasqueraded`, a clause. */
  readonly masqueradeReason: string;
}

/** Returns the policy for a packet to a frontend, by the rules of kube-proxy's iptables mode. Pure. */
export function policyFor(
  { kind, service, isServed }: Frontend,
  packet: Packet,
  settings: ProxySettings,
): PacketPolicy {
  const isLocal = countsAsLocal(packet, settings);
  // Without an address, the sender is a pod because the request says so, whatever the cluster's CIDRs are.
  const localSender = packet.sourceAddress === undefined ? "the sender is a pod" : "the sender is in the cluster CIDR";
  if (kind === "cluster-ip") {
    const set = service.internalTrafficPolicy === "Local" ? "local" : "cluster";
    const policyText = `internalTrafficPolicy is ${service.internalTrafficPolicy}.`;
    const [isMasqueraded, masqueradeReason] = clusterIPMasquerade(isLocal, localSender, settings);
    return { set, policyText, isMasqueraded, masqueradeReason };
  }
  if (service.externalTrafficPolicy === "Cluster") {
    const masqueradeReason = "the endpoint may be on another node and must answer through this one";
    return { set: "cluster", policyText: "externalTrafficPolicy is Cluster.", isMasqueraded: true, masqueradeReason };
  }
  const likeLoadBalancer = "may use all endpoints, as if its traffic came through the load balancer.";
  if (isServed && isLocal) {
    const policyText = `externalTrafficPolicy is Local, but a pod ${likeLoadBalancer}`;
    return { set: "cluster", policyText, isMasqueraded: false, masqueradeReason: localSender };
  }
  if (isServed && packet.source === "node") {
    const policyText = `externalTrafficPolicy is Local, but the node itself ${likeLoadBalancer}`;
    return { set: "cluster", policyText, isMasqueraded: true, masqueradeReason: "the sender is the node itself" };
  }
  const policyText = "externalTrafficPolicy is Local: only endpoints on this node.";
  return {
    set: "local",
    policyText,
    isMasqueraded: false,
    masqueradeReason: "policy Local keeps the sender's address",
  };
}

function clusterIPMasquerade(isLocal: boolean, localSender: string, settings: ProxySettings): [boolean, string] {
  if (settings.isMasqueradeAll) return [true, "masqueradeAll is set"];
  if (settings.clusterCIDRs === "unknown") {
    return [false, "without a cluster CIDR, pods cannot be distinguished from other senders"];
  }
  return isLocal ? [false, localSender] : [true, "the sender is outside the cluster CIDR"];
}
