import type { Route, Sender } from "@kpng/service-plan/service-plan.ts";
import type { ExplainedFrontend } from "./find-frontend.ts";
import { countsAsLocal, type Packet, type ProxySettings } from "./packet.ts";

/** The part of a frontend's plan that applies to one packet, with the texts that explain it. */
export interface PacketPolicy {
  readonly route: Route;
  /** Endpoints that the packet may use: all of the cluster, or those on this node. */
  readonly set: "cluster" | "local";
  /** True if the endpoint sees the node's address instead of the sender's, so that it replies through this node. */
  readonly isMasqueraded: boolean;
  readonly policyText: string;
  /** Reason for `isMasqueraded`, a clause. */
  readonly masqueradeReason: string;
}

/**
 * Returns the policy for a packet to a frontend. Pure. `explainPacket` calls it after `findFrontend`. Separate from
 * both, because it alone knows traffic policies and masquerading.
 */
export function policyFor(frontend: ExplainedFrontend, packet: Packet, settings: ProxySettings): PacketPolicy {
  const { service, planned, isServed } = frontend;
  const sender = isServed ? senderOf(packet, settings) : "outside";
  const route = planned.routes[sender];
  const isInternal = planned.kind === "clusterIP";
  const policy = isInternal ? service.internalTrafficPolicy : service.externalTrafficPolicy;
  const set = route.kind === "balance" ? route.set : policy === "Local" ? "local" : "cluster";
  const isMasqueraded = route.kind === "balance" && route.isMasqueraded;
  const name = isInternal ? "internalTrafficPolicy" : "externalTrafficPolicy";
  if (isInternal) {
    const masqueradeReason = clusterIPMasquerade(sender, packet, settings);
    return { route, set, isMasqueraded, policyText: `${name} is ${policy}.`, masqueradeReason };
  }
  if (policy === "Cluster") {
    const masqueradeReason = "the endpoint may be on another node and must answer through this one";
    return { route, set, isMasqueraded, policyText: `${name} is Cluster.`, masqueradeReason };
  }
  if (set === "local") {
    const policyText = `${name} is Local: only endpoints on this node.`;
    return { route, set, isMasqueraded, policyText, masqueradeReason: "policy Local keeps the sender's address" };
  }
  const [who, masqueradeReason] =
    sender === "pod" ? ["a pod", describePod(packet)] : ["the node itself", "the sender is the node itself"];
  const policyText = `${name} is Local, but ${who} may use all endpoints, as if its traffic came through the load balancer.`;
  return { route, set, isMasqueraded, policyText, masqueradeReason };
}

/** The sender as the proxy classifies it. */
function senderOf(packet: Packet, settings: ProxySettings): Sender {
  if (countsAsLocal(packet, settings)) return "pod";
  return packet.source === "node" ? "node" : "outside";
}

/** Without an address, the sender is a pod because the request says so, whatever the cluster's CIDRs are. */
function describePod({ sourceAddress }: Packet): string {
  return sourceAddress === undefined ? "the sender is a pod" : "the sender is in the cluster CIDR";
}

function clusterIPMasquerade(sender: Sender, packet: Packet, settings: ProxySettings): string {
  if (settings.isMasqueradeAll) return "masqueradeAll is set";
  if (settings.clusterCIDRs === "unknown")
    return "without a cluster CIDR, pods cannot be distinguished from other senders";
  return sender === "pod" ? describePod(packet) : "the sender is outside the cluster CIDR";
}
