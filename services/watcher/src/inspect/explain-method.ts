import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { parseAddress, parseCidr } from "@kpng/model/address.ts";
import { Protocol as ProtocolMessage } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  FrontendKind as FrontendMessage,
  type ProxySettings as ProxySettingsMessage,
  SourceKind as SourceMessage,
  Stage,
  Verdict as VerdictMessage,
} from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import {
  type ExplainRequest,
  type ExplainResponse,
  ExplainResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Protocol, Service } from "@kpng/model/service.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { readProxyName } from "../stream/session/requests.ts";
import { explainPacket, type StageName, type Verdict } from "./explain/explain-packet.ts";
import type { FrontendKind } from "./explain/find-frontend.ts";
import { nodeAddresses, type Packet, type ProxySettings, type SourceKind, sourceKindOf } from "./explain/packet.ts";
import { type InspectContext, syncedSnapshot } from "./inspect-context.ts";
import { readAskedNode } from "./requested-node.ts";
import { decisionRow } from "./rows/decision-row.ts";
import { listAddresses, protocolMessage } from "./rows/service-row.ts";

/** InspectService.Explain. Errors: INVALID_ARGUMENT, UNAVAILABLE. */
export function explainMethod({ store, proxyNames }: InspectContext, request: ExplainRequest): ExplainResponse {
  const nodeName = readAskedNode(request.nodeName);
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
    frontend: frontend === undefined ? FrontendMessage.UNSPECIFIED : frontendMessages[frontend.kind],
    verdict: verdictMessages[verdict],
    isMasqueraded,
    steps: steps.map(({ stage, text }) => ({ stage: stageMessages[stage], text })),
    endpoints: endpoints.map((decision) => decisionRow(decision, true)),
    assumptions: assumptionsOf(request, packet, settings, snapshot.nodes.get(nodeName) !== undefined),
  });
}

function readPacket(request: ExplainRequest, snapshot: Snapshot, nodeName: string, settings: ProxySettings): Packet {
  const { sourceAddress, sourceKind } = request;
  const target = readDestination(request, snapshot);
  const parsed = sourceAddress === "" ? undefined : parseAddress(sourceAddress);
  if (sourceAddress !== "" && parsed === undefined) throw invalid(`source_address "${sourceAddress}" is no IP address`);
  if (parsed !== undefined && parsed.family !== target.family) {
    throw invalid(`source_address ${parsed.address} and destination ${target.destination} are of different families`);
  }
  const own = nodeAddresses(snapshot.nodes.get(nodeName), settings);
  const said = sourceKinds.get(sourceKind);
  const source = said ?? (parsed === undefined ? "pod" : sourceKindOf(parsed.address, own, settings));
  return { ...target, source, sourceAddress: parsed?.address };
}

/** Where it goes: an address and a port, or a Service's first cluster IP and the port that is asked for. */
function readDestination(
  { destination, port, protocol }: ExplainRequest,
  { services }: Snapshot,
): Pick<Packet, "family" | "destination" | "port" | "protocol"> {
  if (port > 65_535) throw invalid(`port is ${port} and the limit is 65535`);
  const wanted = protocols.get(protocol);
  const address = parseAddress(destination);
  if (address !== undefined) {
    if (port === 0) throw invalid("port is 0; with an address it is 1 to 65535");
    return { family: address.family, destination: address.address, port, protocol: wanted ?? "TCP" };
  }
  const service = services.get(destination);
  if (service === undefined) {
    throw invalid(`destination "${destination}" is neither an IP address nor the namespace/name of a Service`);
  }
  return { ...clusterAddress(service), ...choosePort(service, port, wanted) };
}

function clusterAddress(service: Service): Pick<Packet, "family" | "destination"> {
  const parsed = parseAddress(listAddresses(service.clusterIPs)[0] ?? "");
  if (parsed !== undefined) return { family: parsed.family, destination: parsed.address };
  throw invalid(`destination ${service.namespace}/${service.name} has no cluster IP: give an address`);
}

function choosePort(service: Service, port: number, wanted: Protocol | undefined): Pick<Packet, "port" | "protocol"> {
  if (port !== 0) {
    const own = service.ports.find((each) => each.port === port && each.protocol === (wanted ?? each.protocol));
    return { port, protocol: wanted ?? own?.protocol ?? "TCP" };
  }
  const first = service.ports.find(({ protocol }) => protocol === (wanted ?? protocol));
  if (first === undefined) throw invalid(`destination ${service.namespace}/${service.name} has no such port`);
  return { port: first.port, protocol: first.protocol };
}

function readSettings(message: ProxySettingsMessage | undefined, { nodes }: Snapshot): ProxySettings {
  const cidrs = (field: string, texts: readonly string[] = []): readonly string[] =>
    texts.map((text) => {
      const parsed = parseCidr(text);
      if (parsed === undefined) throw invalid(`settings.${field} "${text}" is no CIDR`);
      return parsed.cidr;
    });
  const given = cidrs("cluster_cidrs", message?.clusterCidrs);
  const ofNodes = given.length > 0 ? given : [...nodes.values()].flatMap(({ podCIDRs }) => podCIDRs);
  return {
    clusterCIDRs: message?.hasNoClusterCidr === true ? "unknown" : ofNodes,
    isMasqueradeAll: message?.masqueradeAll ?? false,
    nodePortAddresses: cidrs("node_port_addresses", message?.nodePortAddresses),
    isLocalhostNodePorts: message?.noLocalhostNodePorts !== true,
    moreNodeAddresses: message?.moreNodeAddresses ?? [],
  };
}

function assumptionsOf(
  { settings, sourceAddress, sourceKind }: ExplainRequest,
  { source }: Packet,
  { clusterCIDRs }: ProxySettings,
  isNodeKnown: boolean,
): string[] {
  const all = ["The node's proxy has applied this revision."];
  if (!isNodeKnown)
    all.push("The cluster does not know the node: it is taken to have no zone, no address and no pods.");
  if (sourceAddress === "" && sourceKind === SourceMessage.UNSPECIFIED) all.push("The sender is a pod of the node.");
  else if (sourceAddress !== "" && sourceKind === SourceMessage.UNSPECIFIED) {
    all.push(`The sender is ${sourceTexts[source]}, by its address.`);
  }
  if (clusterCIDRs !== "unknown" && (settings?.clusterCidrs.length ?? 0) === 0) {
    all.push(
      clusterCIDRs.length > 0
        ? "Pods are what the pod CIDRs of the Nodes hold (settings.cluster_cidrs)."
        : "No Node has pod CIDRs: every address is taken for one outside the cluster (settings.cluster_cidrs).",
    );
  }
  if (settings === undefined) all.push("The proxy's other options are kube-proxy's defaults (settings).");
  if ((settings?.moreNodeAddresses.length ?? 0) === 0) {
    all.push("The node has no addresses but those of its status (settings.more_node_addresses).");
  }
  return all;
}

function invalid(message: string): ConnectError {
  return new ConnectError(message, Code.InvalidArgument);
}

const protocols: ReadonlyMap<ProtocolMessage, Protocol> = new Map([
  [ProtocolMessage.TCP, "TCP"],
  [ProtocolMessage.UDP, "UDP"],
  [ProtocolMessage.SCTP, "SCTP"],
]);

const sourceMessages: Readonly<Record<SourceKind, SourceMessage>> = {
  pod: SourceMessage.POD,
  node: SourceMessage.NODE,
  outside: SourceMessage.OUTSIDE,
};

const sourceKinds: ReadonlyMap<SourceMessage, SourceKind> = new Map(
  (["pod", "node", "outside"] as const).map((kind) => [sourceMessages[kind], kind]),
);

const sourceTexts: Readonly<Record<SourceKind, string>> = {
  pod: "a pod",
  node: "the node itself",
  outside: "outside the cluster",
};

const frontendMessages: Readonly<Record<FrontendKind, FrontendMessage>> = {
  "cluster-ip": FrontendMessage.CLUSTER_IP,
  "external-ip": FrontendMessage.EXTERNAL_IP,
  "load-balancer-ip": FrontendMessage.LOAD_BALANCER_IP,
  "node-port": FrontendMessage.NODE_PORT,
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
