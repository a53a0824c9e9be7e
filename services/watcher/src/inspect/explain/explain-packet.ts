import type { Node } from "@kpng/model/node.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { slicesOf } from "../../store/snapshot.ts";
import { choosingNode } from "../../view/node.ts";
import { makeServiceView } from "../../view/service-view.ts";
import { answersFor, type Decision, explainService } from "./explain-service.ts";
import { type Frontend, findFrontend } from "./find-frontend.ts";
import { isInCidr } from "./in-cidr.ts";
import { isTakenForLocal, nodeAddresses, type Packet, type ProxySettings } from "./packet.ts";

export type Verdict = "forward" | "drop" | "reject" | "untouched";

/** A question that one step of the way answers. */
export type StageName = "service" | "source-ranges" | "policy" | "endpoints" | "affinity" | "masquerade" | "verdict";

export interface Step {
  readonly stage: StageName;
  readonly text: string;
}

export interface ExplainedPacket {
  readonly frontend: Frontend | undefined;
  readonly verdict: Verdict;
  /** Of a sender that is not the endpoint itself, which is always masqueraded. */
  readonly isMasqueraded: boolean;
  readonly steps: readonly Step[];
  /** Of the service port, in the packet's family; `isUsed` is about this packet. The used ones first. */
  readonly endpoints: readonly Decision[];
}

/** Which endpoints a packet may go to, and whether they see the sender. */
interface Path {
  readonly set: "cluster" | "local";
  readonly isMasqueraded: boolean;
  readonly policy: string;
  readonly masquerade: string;
}

/**
 * Says what becomes of a packet on a node, step by step, by the rules of kube-proxy's iptables mode.
 *
 * Endpoints come from {@link explainService}, and so from the code that decides what the node is told.
 *
 * Pure; O(Services + endpoints of the Service).
 */
export function explainPacket(
  snapshot: Snapshot,
  nodeName: string,
  proxyName: string,
  packet: Packet,
  settings: ProxySettings,
): ExplainedPacket {
  const node = snapshot.nodes.get(nodeName);
  const services = [...snapshot.services.values()].filter((service) => service.proxyName === proxyName);
  const found = findFrontend(services, packet, node, settings);
  if ("none" in found) {
    const verdict = { stage: "verdict", text: "No rule is for it: it goes the way of the node's routes." } as const;
    const steps = [{ stage: "service", text: found.none } as const, verdict];
    return { frontend: undefined, verdict: "untouched", isMasqueraded: false, steps, endpoints: [] };
  }
  const { frontend } = found;
  const { service, port } = frontend;
  const key: ServiceKey = `${service.namespace}/${service.name}`;
  const slices = slicesOf(snapshot, key);
  const choosing = choosingNode(snapshot, nodeName);
  const flags = makeServiceView(service, slices, choosing).portHasEndpoints?.[service.ports.indexOf(port)];
  const hasEndpoints = flags?.[packet.family] === true;
  const path = choosePath(frontend, packet, settings);
  const decisions = explainService({ ...service, service, slices }, choosing, proxyName)
    .filter(({ family }) => family === packet.family)
    .filter((decision) => leadsTo(decision, frontend))
    .map((decision) => ({ ...decision, ...forPath(decision, path) }))
    .sort((a, b) => Number(b.isUsed) - Number(a.isUsed));
  const used = decisions.filter(({ isUsed }) => isUsed);

  const steps: Step[] = [];
  const step = (stage: StageName, text: string): void => void steps.push({ stage, text });
  const end = (verdict: Verdict, text: string): ExplainedPacket => {
    step("verdict", text);
    const isMasqueraded = verdict === "forward" && path.isMasqueraded;
    return { frontend, verdict, isMasqueraded, steps, endpoints: decisions };
  };
  step("service", `${describeFrontend(frontend, packet)}.`);
  if (!hasEndpoints) {
    step("endpoints", "The Service has no usable endpoint of this family anywhere in the cluster.");
    if (leavesUnseen(frontend, packet, node, settings)) {
      return end(
        "untouched",
        "What a node itself sends to an external address is not refused: it leaves by the routes.",
      );
    }
    return end("reject", "It is refused: the sender is told at once.");
  }
  if (frontend.sourceRanges !== undefined) {
    const refusal = refuseSource(frontend.sourceRanges, packet, node);
    const ranges = frontend.sourceRanges.join(", ");
    step("source-ranges", refusal ?? `The sender is in loadBalancerSourceRanges (${ranges}).`);
    if (refusal !== undefined) return end("drop", "It is dropped: the sender hears nothing.");
  }
  step("policy", path.policy);
  if (!frontend.isServed && used.length > 0) {
    return end("untouched", `${packet.destination} takes no node ports (node-port addresses): no rule is for it.`);
  }
  step("endpoints", describeEndpoints(used, decisions, path));
  if (used.length === 0) {
    if (leavesUnseen(frontend, packet, node, settings)) {
      return end(
        "untouched",
        "What a node itself sends to an external address is not dropped: it leaves by the routes.",
      );
    }
    return end(
      "drop",
      "It is dropped, not refused: other nodes have endpoints, and a load balancer should have asked them.",
    );
  }
  if (service.clientIPAffinitySeconds !== undefined) {
    const seconds = service.clientIPAffinitySeconds;
    step("affinity", `A sender that came in the last ${seconds} seconds stays with its endpoint while that is used.`);
  }
  step("masquerade", describeMasquerade(path, packet, used));
  return end(
    "forward",
    used.length === 1 ? "It goes to that endpoint." : `It goes to one of ${used.length}, each as likely.`,
  );
}

/** Which set the policy leaves, and whether the endpoint must answer by way of this node. */
function choosePath({ kind, service, isServed }: Frontend, packet: Packet, settings: ProxySettings): Path {
  const isLocal = isTakenForLocal(packet, settings);
  // Without an address it is a pod because the question says so, whatever the cluster's CIDRs are.
  const localSender = packet.sourceAddress === undefined ? "the sender is a pod" : "the sender is in the cluster CIDR";
  if (kind === "cluster-ip") {
    const set = service.internalTrafficPolicy === "Local" ? "local" : "cluster";
    const policy = `internalTrafficPolicy is ${service.internalTrafficPolicy}.`;
    if (settings.isMasqueradeAll) {
      return { set, policy, isMasqueraded: true, masquerade: "masqueradeAll is set" };
    }
    if (settings.clusterCIDRs === "unknown") {
      return {
        set,
        policy,
        isMasqueraded: false,
        masquerade: "pods cannot be told from others without a cluster CIDR",
      };
    }
    return isLocal
      ? { set, policy, isMasqueraded: false, masquerade: localSender }
      : { set, policy, isMasqueraded: true, masquerade: "the sender is outside the cluster CIDR" };
  }
  if (service.externalTrafficPolicy === "Cluster") {
    const policy = "externalTrafficPolicy is Cluster.";
    const masquerade = "the endpoint may be on another node and must answer through this one";
    return { set: "cluster", policy, isMasqueraded: true, masquerade };
  }
  const policy = "externalTrafficPolicy is Local";
  if (isServed && isLocal) {
    const text = `${policy}; a pod counts as if it had gone out to the load balancer, and may use all endpoints.`;
    return { set: "cluster", policy: text, isMasqueraded: false, masquerade: localSender };
  }
  if (isServed && packet.source === "node") {
    const text = `${policy}; the node itself counts as if it had gone out to the load balancer, and may use all endpoints.`;
    return { set: "cluster", policy: text, isMasqueraded: true, masquerade: "the sender is the node itself" };
  }
  const text = `${policy}: only endpoints on this node.`;
  return { set: "local", policy: text, isMasqueraded: false, masquerade: "policy Local keeps the sender's address" };
}

function leadsTo(decision: Decision, { port }: Frontend): boolean {
  if (decision.reason === "no-such-port") {
    return decision.portName === port.name && decision.protocol === port.protocol;
  }
  const named = decision.port === 0 ? undefined : { name: decision.portName, protocol: decision.protocol };
  return answersFor(named, port);
}

/** Whether and why this packet's set has the endpoint, where the choice decides. */
function forPath({ reason, use, reasons }: Decision, { set }: Path): Pick<Decision, "isUsed" | "reason"> {
  const ofSet = reasons[set];
  return ofSet === undefined ? { isUsed: false, reason } : { isUsed: use?.[set] === true, reason: ofSet };
}

function describeFrontend({ kind, service, port }: Frontend, { destination }: Packet): string {
  const name = `${service.namespace}/${service.name}${port.name === "" ? "" : `, port ${port.name}`}`;
  const what = {
    "cluster-ip": `${destination} is a cluster IP`,
    "external-ip": `${destination} is an external IP`,
    "load-balancer-ip": `${destination} is a load-balancer IP`,
    "node-port": `${port.nodePort}/${port.protocol} is a node port`,
  }[kind];
  return `${what} of ${name}`;
}

function describeEndpoints(used: readonly Decision[], all: readonly Decision[], { set }: Path): string {
  const where = set === "local" ? " on this node" : "";
  if (used.length === 0 && all.length === 1) return `The only endpoint is not usable${where}.`;
  if (used.length === 0) return `None of ${all.length} endpoints is usable${where}.`;
  if (all.length === 1) return `The only endpoint is used${where}.`;
  return `${used.length} of ${all.length} endpoints ${used.length === 1 ? "is" : "are"} used${where}.`;
}

function describeMasquerade({ isMasqueraded, masquerade }: Path, packet: Packet, used: readonly Decision[]): string {
  if (isMasqueraded) return `The endpoint sees the node's address: ${masquerade}.`;
  const isItself = used.some(({ address }) => address === packet.sourceAddress);
  const but = isItself ? ", but where it reaches itself: its own answer would not come back otherwise" : "";
  return `The endpoint sees the sender's address${but}: ${masquerade}.`;
}

/** A sentence if the sender may not use the address. */
function refuseSource(
  ranges: readonly string[],
  { source, sourceAddress, destination, family }: Packet,
  node: Node | undefined,
): string | undefined {
  const ofNode = node?.addresses.find((address) => address.includes(":") === (family === "v6"));
  const isIn = (address: string): boolean => ranges.some((range) => isInCidr(address, range));
  const sender = sourceAddress ?? (source === "node" ? ofNode : undefined);
  const list = ranges.join(", ");
  if (sender === undefined)
    return `loadBalancerSourceRanges (${list}) let through some senders only: give its address.`;
  if (isIn(sender)) return undefined;
  // The load balancer's address may be one of the node's own: what the node sends there comes from it.
  if (sender === destination && ofNode !== undefined && isIn(ofNode)) return undefined;
  return `${sender} is in none of loadBalancerSourceRanges (${list}).`;
}

/** The rules that refuse and drop at external addresses are not met by what a node sends to other machines. */
function leavesUnseen(
  { kind }: Frontend,
  { source, destination }: Packet,
  node: Node | undefined,
  settings: ProxySettings,
): boolean {
  if (source !== "node" || kind === "cluster-ip" || kind === "node-port") return false;
  return !nodeAddresses(node, settings).includes(destination);
}
