import { addressAndPort } from "@kpng/model/address.ts";
import type { Node } from "@kpng/model/node.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { isAllowed, meetsVerdict } from "@kpng/service-plan/outcomes.ts";
import { nodeAddress } from "@kpng/service-plan/plan-node.ts";
import type { AllowedSources } from "@kpng/service-plan/service-plan.ts";
import { type Snapshot, slicesOf } from "../../store/snapshot.ts";
import { choosingNode } from "../../view/service-view.ts";
import { answersFor, type Decision, explainService } from "./explain-service.ts";
import { describeProgram, type ExplainedFrontend, findFrontend } from "./find-frontend.ts";
import type { Packet, ProxySettings } from "./packet.ts";
import { type PacketPolicy, policyFor } from "./packet-policy.ts";

/**
 * Explains step by step what happens to a packet on a node, by the plan of its proxy. The endpoints come from
 * {@link explainService}, and so from the code that computes the node's view.
 *
 * Pure; O(Services + endpoints of the Service).
 *
 * `explainMethod` calls it, for `kpng explain`. This file puts the steps in order and writes their sentences;
 * `findFrontend`, `policyFor` and `explainService` decide them.
 */
export function explainPacket(
  snapshot: Snapshot,
  nodeName: string,
  proxyName: string,
  packet: Packet,
  settings: ProxySettings,
): ExplainedPacket {
  const found = findFrontend(snapshot, nodeName, proxyName, packet, settings);
  if ("none" in found) {
    const program = describeProgram(snapshot.services.values(), packet);
    const end =
      program === undefined
        ? "No rule matches it, so the node's routes decide."
        : "No rule of a service proxy matches it, so the program and the node's routes decide.";
    const steps: Step[] = [
      { stage: "service", text: program ?? found.none },
      { stage: "verdict", text: end },
    ];
    return { frontend: undefined, verdict: "untouched", isMasqueraded: false, steps, endpoints: [] };
  }
  const { frontend } = found;
  const { service, planned } = frontend;
  const slices = slicesOf(snapshot, serviceKey(service));
  const policy = policyFor(frontend, packet, settings);
  const decisions = explainService({ ...service, service, slices }, choosingNode(snapshot, nodeName), proxyName)
    .filter(({ family }) => family === packet.family)
    .filter((decision) => leadsTo(decision, frontend))
    .map((decision) => ({ ...decision, ...forPolicy(decision, policy) }))
    .sort((a, b) => Number(b.isUsed) - Number(a.isUsed));
  const used = decisions.filter(({ isUsed }) => isUsed);

  const steps: Step[] = [];
  const step = (stage: StageName, text: string): void => void steps.push({ stage, text });
  const end = (verdict: Verdict, text: string): ExplainedPacket => {
    step("verdict", text);
    const isMasqueraded = verdict === "forward" && policy.isMasqueraded;
    return { frontend, verdict, isMasqueraded, steps, endpoints: decisions };
  };
  const isFiltered = meetsVerdict(planned, packet.source === "node", frontend.isToNode);
  const bypass = `Packets from the node itself to an external address are not filtered, so the node's routes decide.`;
  step("service", `${describeFrontend(frontend, packet)}.${describeEmptyOwner(frontend, packet)}`);
  if (policy.route.kind === "refuse") {
    step("endpoints", "The Service has no usable endpoint of this address family in the cluster.");
    if (!isFiltered) return end("untouched", bypass);
    return end("reject", "It is rejected: the sender gets an error at once.");
  }
  if (planned.sources !== undefined) {
    const refusal = refuseSource(planned.sources, packet, snapshot.nodes.get(nodeName));
    const ranges = planned.sources.ranges.join(", ");
    step("source-ranges", refusal ?? `The sender is in loadBalancerSourceRanges (${ranges}).`);
    if (refusal !== undefined) return end("drop", "It is dropped: the sender gets no reply.");
  }
  step("policy", policy.policyText);
  if (!frontend.isServed && policy.route.kind === "balance") {
    const text = `${packet.destination} does not accept node ports (node-port addresses), so no rule matches it.`;
    return end("untouched", text);
  }
  step("endpoints", describeEndpoints(used, decisions, policy));
  if (policy.route.kind === "drop") {
    if (!isFiltered) return end("untouched", bypass);
    const text =
      "It is dropped, not rejected: other nodes have endpoints, and a load balancer should choose those nodes.";
    return end("drop", text);
  }
  if (service.clientIPAffinitySeconds !== undefined) {
    const seconds = service.clientIPAffinitySeconds;
    step(
      "affinity",
      `A client that connected within the last ${seconds} seconds keeps its endpoint while that is used.`,
    );
  }
  step("masquerade", describeMasquerade(policy, packet, used));
  const choice = used.length === 1 ? "this endpoint" : `one of ${used.length} endpoints with equal probability`;
  return end("forward", `It goes to ${choice}.`);
}

/** Outcome of a packet. "untouched": no rule matches it. */
export type Verdict = "forward" | "drop" | "reject" | "untouched";

/** Decision that a step explains. */
export type StageName = "service" | "source-ranges" | "policy" | "endpoints" | "affinity" | "masquerade" | "verdict";

/** One step of the explanation, a full sentence. */
export interface Step {
  readonly stage: StageName;
  readonly text: string;
}

/** Result of {@link explainPacket}. */
export interface ExplainedPacket {
  readonly frontend: ExplainedFrontend | undefined;
  readonly verdict: Verdict;
  /** Whether the endpoint sees the node's address. An endpoint that reaches itself always does. */
  readonly isMasqueraded: boolean;
  readonly steps: readonly Step[];
  /** Endpoints of the service port in the packet's family, used ones first. `isUsed` is about this packet. */
  readonly endpoints: readonly Decision[];
}

/** True if a decision about an endpoint concerns the service port of the frontend. */
function leadsTo(decision: Decision, { port }: ExplainedFrontend): boolean {
  if (decision.reason === "no-such-port") {
    return decision.portName === port.name && decision.protocol === port.protocol;
  }
  const named = decision.port === 0 ? undefined : { name: decision.portName, protocol: decision.protocol };
  return answersFor(named, port);
}

/** Narrows a decision to the endpoint set of the packet. */
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

function describeEmptyOwner({ emptyOwner }: ExplainedFrontend, { destination, port }: Packet): string {
  if (emptyOwner === undefined) return "";
  const place = addressAndPort(destination, port);
  const proxies = "kpng-ipvs and kpng-userspace refuse the packet for that reason; other proxies do not";
  return ` ${place} is also a place of ${serviceKey(emptyOwner)}, which has no endpoint: ${proxies}.`;
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

/** Returns a sentence if the source ranges do not admit the sender. */
function refuseSource(
  sources: AllowedSources,
  { source, sourceAddress, family }: Packet,
  node: Pick<Node, "addresses"> | undefined,
): string | undefined {
  const sender = sourceAddress ?? (source === "node" ? nodeAddress(node, family) : undefined);
  const list = sources.ranges.join(", ");
  if (sender === undefined) {
    return `loadBalancerSourceRanges (${list}) admit only some senders: specify the sender's address.`;
  }
  return isAllowed(sender, sources) ? undefined : `${sender} is not in loadBalancerSourceRanges (${list}).`;
}
