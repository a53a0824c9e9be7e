import { Code, ConnectError } from "@connectrpc/connect";
import { isIn, parseAddress, parseCidr } from "@kpng/model/address.ts";
import { Protocol as ProtocolMessage } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { type ProxySettings, SourceKind } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { ExplainRequest, ExplainResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Protocol, type Service, serviceKey } from "@kpng/model/service.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { readProxyName, syncedSnapshot } from "../stream/session/requests.ts";
import { listAddresses, protocolMessage } from "./cluster-rows.ts";
import { explainPacket } from "./explain-packet.ts";
import type { ExplainSettings, Packet } from "./find-frontend.ts";
import { type InspectContext, readRequestedNode } from "./lists.ts";

/**
 * Answers `kpng explain`: fills in what the request leaves open, explains the packet for one snapshot, and lists each
 * assumption. Errors: INVALID_ARGUMENT, UNAVAILABLE before the first complete list.
 */
export function explainMethod({ subscribers, proxyNames }: InspectContext, request: ExplainRequest): ExplainResponse {
  const nodeName = readRequestedNode(request.nodeName);
  const proxyName = readProxyName(request.serviceProxyName, proxyNames);
  const snapshot = syncedSnapshot(subscribers.store);
  const settings = readSettings(request.settings, snapshot);
  const packet = readPacket(request, snapshot, nodeName, settings);
  const isNodeKnown = snapshot.nodes.get(nodeName) !== undefined;
  return {
    ...explainPacket(snapshot, nodeName, proxyName, packet, settings),
    revision: BigInt(snapshot.revision),
    isNodeKnown,
    sourceKind: packet.source,
    destinationAddress: packet.destination,
    port: packet.port,
    protocol: protocolMessage(packet.protocol),
    assumptions: assumptionsOf(request, packet, settings, isNodeKnown),
  };
}

/** Returns the assumptions that the explanation makes about fields that the request did not set. */
function assumptionsOf(
  { settings, sourceAddress, sourceKind }: ExplainRequest,
  { source }: Packet,
  { clusterCIDRs }: ExplainSettings,
  isNodeKnown: boolean,
): string[] {
  const all = ["The node's proxy has applied this revision."];
  if (!isNodeKnown) all.push("The cluster has no such Node: it is assumed to have no zone, addresses or pods.");
  if (sourceAddress === "" && sourceKind === SourceKind.UNSPECIFIED) all.push("The sender is a pod on the node.");
  else if (sourceAddress !== "" && sourceKind === SourceKind.UNSPECIFIED) {
    all.push(`The sender is ${sourceTexts[source]}, judging by its address.`);
  }
  if ((settings?.clusterCidrs.length ?? 0) === 0) {
    all.push(
      clusterCIDRs.length > 0
        ? "Addresses in the pod CIDRs of the Nodes are pods (settings.cluster_cidrs)."
        : "No Node has pod CIDRs: all addresses count as outside the cluster (settings.cluster_cidrs).",
    );
  }
  if (settings === undefined)
    all.push("All other options of the proxy have the defaults of kube-proxy's iptables mode (settings).");
  all.push("The node has only the addresses of its status.");
  return all;
}

const sourceTexts: Readonly<Record<SourceKind, string>> = {
  [SourceKind.UNSPECIFIED]: "unknown",
  [SourceKind.POD]: "a pod",
  [SourceKind.NODE]: "the node itself",
  [SourceKind.OUTSIDE]: "outside the cluster",
};

/** Decodes the packet of a request. Errors: INVALID_ARGUMENT for an invalid packet. */
export function readPacket(
  request: ExplainRequest,
  snapshot: Snapshot,
  nodeName: string,
  settings: ExplainSettings,
): Packet {
  const { sourceAddress, sourceKind } = request;
  const target = readDestination(request, snapshot);
  const parsed = sourceAddress === "" ? undefined : parseAddress(sourceAddress);
  if (sourceAddress !== "" && parsed === undefined)
    throw invalid(`source_address "${sourceAddress}" is not an IP address`);
  if (parsed !== undefined && parsed.family !== target.family) {
    throw invalid(
      `source_address ${parsed.address} and destination ${target.destination} are of different address families`,
    );
  }
  const likely =
    parsed === undefined ? SourceKind.POD : sourceKindOf(parsed.address, snapshot.nodes.get(nodeName), settings);
  const source = sourceKind === SourceKind.UNSPECIFIED ? likely : sourceKind;
  return { ...target, source, sourceAddress: parsed?.address };
}

function sourceKindOf(address: string, node: Node | undefined, { clusterCIDRs }: ExplainSettings): SourceKind {
  if (node?.addresses.includes(address) || isLoopback(address)) return SourceKind.NODE;
  return clusterCIDRs.some((cidr) => isIn(address, cidr)) ? SourceKind.POD : SourceKind.OUTSIDE;
}

/**
 * Decodes the destination. If it is a Service, uses its first cluster IP or, if the Service is headless, its first
 * other address.
 */
function readDestination(
  { destination, port, protocol }: ExplainRequest,
  { services }: Snapshot,
): Pick<Packet, "family" | "destination" | "port" | "protocol"> {
  if (port > 65_535) throw invalid(`port ${port} exceeds the limit of 65535`);
  const givenProtocol = (["TCP", "UDP", "SCTP"] as const).find((name) => ProtocolMessage[name] === protocol);
  const address = parseAddress(destination);
  if (address !== undefined) {
    if (port === 0) throw invalid("port is 0; with an IP address, it must be 1 to 65535");
    return { family: address.family, destination: address.address, port, protocol: givenProtocol ?? "TCP" };
  }
  const service = services.get(destination);
  if (service === undefined) {
    if (destination.includes("/")) throw new ConnectError(`Service "${destination}" not found`, Code.NotFound);
    throw invalid(`destination "${destination}" is neither an IP address nor the namespace/name of a Service`);
  }
  return { ...firstAddress(service), ...choosePort(service, port, givenProtocol) };
}

function firstAddress(service: Service): Pick<Packet, "family" | "destination"> {
  const { clusterIPs, externalIPs, loadBalancerIPs } = service;
  const [first = ""] = [clusterIPs, externalIPs, loadBalancerIPs].flatMap((set) => listAddresses(set));
  const parsed = parseAddress(first);
  if (parsed !== undefined) return { family: parsed.family, destination: parsed.address };
  throw invalid(`destination ${serviceKey(service)} has no address: use an IP address`);
}

function choosePort(service: Service, port: number, given: Protocol | undefined): Pick<Packet, "port" | "protocol"> {
  if (port !== 0) {
    const servicePort = service.ports.find((each) => each.port === port && each.protocol === (given ?? each.protocol));
    return { port, protocol: given ?? servicePort?.protocol ?? "TCP" };
  }
  const first = service.ports.find(({ protocol }) => protocol === (given ?? protocol));
  if (first === undefined) throw invalid(`destination ${service.namespace}/${service.name} has no such port`);
  return { port: first.port, protocol: first.protocol };
}

/** Decodes the proxy settings of a request; cluster CIDRs default to those of all Nodes. Errors: INVALID_ARGUMENT. */
function readSettings(message: ProxySettings | undefined, { nodes }: Snapshot): ExplainSettings {
  const cidrs = (field: string, texts: readonly string[] = []): readonly string[] =>
    texts.map((text) => {
      const parsed = parseCidr(text);
      if (parsed === undefined) throw invalid(`settings.${field} "${text}" is not a CIDR`);
      return parsed.cidr;
    });
  const given = cidrs("cluster_cidrs", message?.clusterCidrs);
  const clusterCIDRs = given.length > 0 ? given : [...nodes.values()].flatMap(({ podCIDRs }) => podCIDRs);
  return {
    clusterCIDRs,
    isMasqueradeAll: message?.masqueradeAll ?? false,
    nodePortAddresses: cidrs("node_port_addresses", message?.nodePortAddresses),
  };
}

function invalid(message: string): ConnectError {
  return new ConnectError(message, Code.InvalidArgument);
}
