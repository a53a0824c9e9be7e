import { create } from "@bufbuild/protobuf";
import {
  FrontendKind as FrontendMessage,
  SourceKind as SourceMessage,
  Stage,
  Verdict as VerdictMessage,
} from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import {
  type ExplainRequest,
  type ExplainResponse,
  ExplainResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Frontend } from "@kpng/service-plan/service-plan.ts";
import { readProxyName, syncedSnapshot } from "../stream/session/requests.ts";
import { explainPacket, type StageName, type Verdict } from "./explain/explain-packet.ts";
import type { Packet, ProxySettings, SourceKind } from "./explain/packet.ts";
import { readPacket, readSettings } from "./explain-request.ts";
import type { InspectContext } from "./inspect-context.ts";
import { readRequestedNode } from "./requested-node.ts";
import { decisionRow } from "./rows/decision-row.ts";
import { protocolMessage } from "./rows/service-row.ts";

/**
 * Method InspectService.Explain: what happens to a packet on a node. `inspection` registers it with the other methods;
 * `kpng explain` and the status page request it. This file encodes the answer; `explain-request.ts` decodes the
 * request, and `explain/` finds the answer. Errors: INVALID_ARGUMENT, UNAVAILABLE.
 */
export function explainMethod({ store, proxyNames }: InspectContext, request: ExplainRequest): ExplainResponse {
  const nodeName = readRequestedNode(request.nodeName);
  const proxyName = readProxyName(request.serviceProxyName, proxyNames);
  const snapshot = syncedSnapshot(store);
  const settings = readSettings(request.settings, snapshot);
  const packet = readPacket(request, snapshot, nodeName, settings);
  const explained = explainPacket(snapshot, nodeName, proxyName, packet, settings);
  const { frontend, verdict, isMasqueraded, steps, endpoints } = explained;
  return create(ExplainResponseSchema, {
    revision: BigInt(snapshot.revision),
    isNodeKnown: snapshot.nodes.get(nodeName) !== undefined,
    sourceKind: sourceMessages[packet.source],
    destinationAddress: packet.destination,
    port: packet.port,
    protocol: protocolMessage(packet.protocol),
    namespace: frontend?.service.namespace ?? "",
    service: frontend?.service.name ?? "",
    portName: frontend?.port.name ?? "",
    frontend: frontend === undefined ? FrontendMessage.UNSPECIFIED : frontendMessages[frontend.planned.kind],
    verdict: verdictMessages[verdict],
    isMasqueraded,
    steps: steps.map(({ stage, text }) => ({ stage: stageMessages[stage], text })),
    endpoints: endpoints.map((decision) => decisionRow(decision, true)),
    assumptions: assumptionsOf(request, packet, settings, snapshot.nodes.get(nodeName) !== undefined),
  });
}

/** Returns the assumptions that the explanation makes, for fields that the request did not set. */
function assumptionsOf(
  { settings, sourceAddress, sourceKind }: ExplainRequest,
  { source }: Packet,
  { clusterCIDRs }: ProxySettings,
  isNodeKnown: boolean,
): string[] {
  const all = ["The node's proxy has applied this revision."];
  if (!isNodeKnown) all.push("The cluster has no such Node: it is assumed to have no zone, addresses or pods.");
  if (sourceAddress === "" && sourceKind === SourceMessage.UNSPECIFIED) all.push("The sender is a pod on the node.");
  else if (sourceAddress !== "" && sourceKind === SourceMessage.UNSPECIFIED) {
    all.push(`The sender is ${sourceTexts[source]}, judging by its address.`);
  }
  if (clusterCIDRs !== "unknown" && (settings?.clusterCidrs.length ?? 0) === 0) {
    all.push(
      clusterCIDRs.length > 0
        ? "Addresses in the pod CIDRs of the Nodes are pods (settings.cluster_cidrs)."
        : "No Node has pod CIDRs: all addresses count as outside the cluster (settings.cluster_cidrs).",
    );
  }
  if (settings === undefined) all.push("All other options of the proxy have kube-proxy's defaults (settings).");
  if ((settings?.moreNodeAddresses.length ?? 0) === 0) {
    all.push("The node has only the addresses of its status (settings.more_node_addresses).");
  }
  return all;
}

const sourceMessages: Readonly<Record<SourceKind, SourceMessage>> = {
  pod: SourceMessage.POD,
  node: SourceMessage.NODE,
  outside: SourceMessage.OUTSIDE,
};

const sourceTexts: Readonly<Record<SourceKind, string>> = {
  pod: "a pod",
  node: "the node itself",
  outside: "outside the cluster",
};

const frontendMessages: Readonly<Record<Frontend["kind"], FrontendMessage>> = {
  clusterIP: FrontendMessage.CLUSTER_IP,
  externalIP: FrontendMessage.EXTERNAL_IP,
  loadBalancerIP: FrontendMessage.LOAD_BALANCER_IP,
  nodePort: FrontendMessage.NODE_PORT,
};

const verdictMessages: Readonly<Record<Verdict, VerdictMessage>> = {
  forward: VerdictMessage.FORWARD,
  drop: VerdictMessage.DROP,
  reject: VerdictMessage.REJECT,
  untouched: VerdictMessage.UNTOUCHED,
};

const stageMessages: Readonly<Record<StageName, Stage>> = {
  service: Stage.SERVICE,
  "source-ranges": Stage.SOURCE_RANGES,
  policy: Stage.POLICY,
  endpoints: Stage.ENDPOINTS,
  affinity: Stage.AFFINITY,
  masquerade: Stage.MASQUERADE,
  verdict: Stage.VERDICT,
};
