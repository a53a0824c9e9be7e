import { create } from "@bufbuild/protobuf";
import { isIn } from "@kpng/model/address.ts";
import { Protocol } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { SourceKind, Stage, Verdict } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { type ExplainResponse, ExplainResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { nodeAddress } from "@kpng/service-plan/plan-node.ts";
import { isAllowed, meetsVerdict } from "@kpng/service-plan/plan-service.ts";
import type { AllowedSources, Route, Sender } from "@kpng/service-plan/service-plan.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { choosingNode } from "../view/service-view.ts";
import { protocolMessage } from "./cluster-rows.ts";
import { type Decision, decisionRow, explainService } from "./explain-service.ts";
import { type ExplainedFrontend, type ExplainSettings, findFrontend, type Packet } from "./find-frontend.ts";

/**
 * Explains step by step what happens to a packet on a node, based on the plan of the node's proxy. The order of the
 * checks matters: `test/conformance` compares the results with scenarios that the real kube-proxy passes. Lists the
 * endpoints, used ones first. Pure; O(Services + endpoints of the Service).
 */
export function explainPacket(
  snapshot: Snapshot,
  nodeName: string,
  proxyName: string,
  packet: Packet,
  settings: ExplainSettings,
): ExplainResponse {
  const match = findFrontend(snapshot, nodeName, proxyName, packet, settings);
  if ("none" in match) {
    const steps = [
      { stage: Stage.SERVICE, text: match.none },
      { stage: Stage.VERDICT, text: match.verdict ?? "No rule matches it, so the node's routes decide." },
    ];
    return create(ExplainResponseSchema, { verdict: Verdict.UNTOUCHED, steps });
  }
  const { frontend } = match;
  const { service, planned } = frontend;
  const policy = policyFor(frontend, packet, settings);
  const decisions = explainService(snapshot, serviceKey(service), choosingNode(snapshot, nodeName), proxyName)
    .filter(({ family }) => family === packet.family)
    .filter((decision) => leadsTo(decision, frontend))
    .map((decision) => ({ ...decision, ...forPolicy(decision, policy) }))
    .sort((a, b) => Number(b.isUsed) - Number(a.isUsed));
  const used = decisions.filter(({ isUsed }) => isUsed);

  const steps: { stage: Stage; text: string }[] = [];
  const step = (stage: Stage, text: string): void => void steps.push({ stage, text });
  const end = (verdict: Verdict, text: string): ExplainResponse => {
    step(Stage.VERDICT, text);
    return create(ExplainResponseSchema, {
      namespace: service.namespace,
      service: service.name,
      portName: frontend.port.name,
      verdict,
      isMasqueraded: verdict === Verdict.FORWARD && policy.isMasqueraded,
      steps,
      endpoints: decisions.map((decision) => decisionRow(decision, true)),
    });
  };
  const isFiltered = meetsVerdict(planned, packet.source === SourceKind.NODE, frontend.isToNode);
  const bypass = `Packets from the node itself to an external address are not filtered, so the node's routes decide.`;
  step(Stage.SERVICE, `${describeFrontend(frontend, packet)}.`);
  if (policy.route.kind === "refuse") {
    step(Stage.ENDPOINTS, "The Service has no usable endpoint of this address family in the cluster.");
    if (!isFiltered) return end(Verdict.UNTOUCHED, bypass);
    return end(Verdict.REJECT, "It is rejected: the sender gets an error at once.");
  }
  if (planned.sources !== undefined) {
    const refusal = refuseSource(planned.sources, packet, snapshot.nodes.get(nodeName));
    const ranges = planned.sources.ranges.join(", ");
    step(Stage.SOURCE_RANGES, refusal ?? `The sender is in loadBalancerSourceRanges (${ranges}).`);
    if (refusal !== undefined) return end(Verdict.DROP, "It is dropped: the sender gets no reply.");
  }
  step(Stage.POLICY, policy.policyText);
  if (!frontend.isServed && policy.route.kind === "balance") {
    const text = `${packet.destination} does not accept node ports (node-port addresses), so no rule matches it.`;
    return end(Verdict.UNTOUCHED, text);
  }
  step(Stage.ENDPOINTS, describeEndpoints(used, decisions, policy));
  if (policy.route.kind === "drop") {
    if (!isFiltered) return end(Verdict.UNTOUCHED, bypass);
    return end(Verdict.DROP, "It is dropped, not rejected: a load balancer should choose a node with endpoints.");
  }
  if (service.clientIPAffinitySeconds !== undefined) {
    const seconds = service.clientIPAffinitySeconds;
    step(
      Stage.AFFINITY,
      `A client that connected within the last ${seconds} seconds keeps its endpoint while that is used.`,
    );
  }
  step(Stage.MASQUERADE, describeMasquerade(policy, packet, used));
  const choice = used.length === 1 ? "this endpoint" : `one of ${used.length} endpoints with equal probability`;
  return end(Verdict.FORWARD, `It goes to ${choice}.`);
}

function leadsTo({ reason, port: number, portName, protocol }: Decision, { port }: ExplainedFrontend): boolean {
  // An endpoint without ports serves only the unnamed service port.
  if (number === 0 && reason !== "no-such-port") return port.name === "";
  return portName === port.name && (protocol === Protocol.UNSPECIFIED || protocol === protocolMessage(port.protocol));
}

function forPolicy({ reason, use, reasons }: Decision, { set }: PacketPolicy): Pick<Decision, "isUsed" | "reason"> {
  const setReason = reasons[set];
  return setReason === undefined ? { isUsed: false, reason } : { isUsed: use?.[set] === true, reason: setReason };
}

function describeFrontend({ planned, service, port }: ExplainedFrontend, { destination }: Packet): string {
  const name = `${service.namespace}/${service.name}${port.name === "" ? "" : `, port ${port.name}`}`;
  const what = {
    clusterIP: `${destination} is a cluster IP`,
    externalIP: `${destination} is an external IP`,
    loadBalancerIP: `${destination} is a load-balancer IP`,
    nodePort: `${port.nodePort}/${port.protocol} is a node port`,
  }[planned.kind];
  return `${what} of ${name}`;
}

function describeEndpoints(used: readonly Decision[], all: readonly Decision[], { set }: PacketPolicy): string {
  const where = set === "local" ? " on this node" : "";
  if (used.length === 0 && all.length === 1) return `The only endpoint is not usable${where}.`;
  if (used.length === 0) return `None of ${all.length} endpoints is usable${where}.`;
  if (all.length === 1) return `The only endpoint is used${where}.`;
  return `${used.length} of ${all.length} endpoints ${used.length === 1 ? "is" : "are"} used${where}.`;
}

function describeMasquerade(policy: PacketPolicy, { sourceAddress }: Packet, used: readonly Decision[]): string {
  if (policy.isMasqueraded) return `The endpoint sees the node's address: ${policy.masqueradeReason}.`;
  const text = `The endpoint sees the sender's address: ${policy.masqueradeReason}.`;
  if (used.every(({ address }) => address !== sourceAddress)) return text;
  return `${text} If it reaches itself, it sees the node's address, because its replies would not return otherwise.`;
}

/** Returns the reason, as a sentence, if the source ranges do not admit the sender. */
function refuseSource(
  sources: AllowedSources,
  { source, sourceAddress, family }: Packet,
  node: Pick<Node, "addresses"> | undefined,
): string | undefined {
  const sender = sourceAddress ?? (source === SourceKind.NODE ? nodeAddress(node, family) : undefined);
  const list = sources.ranges.join(", ");
  if (sender === undefined) {
    return `loadBalancerSourceRanges (${list}) admit only some senders: specify the sender's address.`;
  }
  return isAllowed(sender, sources) ? undefined : `${sender} is not in loadBalancerSourceRanges (${list}).`;
}

/** The part of a frontend's plan that applies to one packet, with explanations. */
interface PacketPolicy {
  readonly route: Route;
  /** Endpoints that the packet may use: all endpoints of the cluster, or only the endpoints on this node. */
  readonly set: "cluster" | "local";
  /** True if the endpoint sees the node's address instead of the sender's, so that it replies through this node. */
  readonly isMasqueraded: boolean;
  readonly policyText: string;
  /** Reason for `isMasqueraded`, as a clause. */
  readonly masqueradeReason: string;
}

function policyFor(frontend: ExplainedFrontend, packet: Packet, settings: ExplainSettings): PacketPolicy {
  const { service, planned, isServed } = frontend;
  const sender = isServed ? senderOf(packet, settings) : "outside";
  const route = planned.routes[sender];
  const isInternal = planned.kind === "clusterIP";
  const policy = isInternal ? service.internalTrafficPolicy : service.externalTrafficPolicy;
  const set = route.kind === "balance" ? route.set : policy === "Local" ? "local" : "cluster";
  const isMasqueraded = route.kind === "balance" && route.isMasqueraded;
  const name = isInternal ? "internalTrafficPolicy" : "externalTrafficPolicy";
  const explained = (policyText: string, masqueradeReason: string): PacketPolicy => {
    return { route, set, isMasqueraded, policyText, masqueradeReason };
  };
  const ofSender = sender === "pod" ? "the sender is a pod" : "the sender is outside the cluster CIDR";
  if (isInternal)
    return explained(`${name} is ${policy}.`, settings.isMasqueradeAll ? "masqueradeAll is set" : ofSender);
  if (policy === "Cluster") {
    const reason = "the endpoint may be on another node and must answer through this one";
    return explained(`${name} is Cluster.`, reason);
  }
  if (set === "local") {
    return explained(`${name} is Local: only endpoints on this node.`, "policy Local keeps the sender's address");
  }
  const [who, reason] = sender === "pod" ? ["a pod", ofSender] : ["the node itself", "the sender is the node itself"];
  const exception = `${who} may use all endpoints, as if its traffic came through the load balancer.`;
  return explained(`${name} is Local, but ${exception}`, reason);
}

/** If the packet has a source address, only the cluster's CIDRs say whether it is a pod's, as in the proxy. */
function senderOf({ source, sourceAddress }: Packet, { clusterCIDRs }: ExplainSettings): Sender {
  const isPod =
    sourceAddress === undefined ? source === SourceKind.POD : clusterCIDRs.some((cidr) => isIn(sourceAddress, cidr));
  if (isPod) return "pod";
  return source === SourceKind.NODE ? "node" : "outside";
}
