import { Code, ConnectError } from "@connectrpc/connect";
import { parseAddress, parseCidr } from "@kpng/model/address.ts";
import { Protocol as ProtocolMessage } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  type ProxySettings as ProxySettingsMessage,
  SourceKind as SourceMessage,
} from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { ExplainRequest } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type Protocol, type Service, serviceKey } from "@kpng/model/service.ts";
import type { Snapshot } from "../store/snapshot.ts";
import { isForProgram } from "./explain/explain-service.ts";
import { nodeAddresses, type Packet, type ProxySettings, type SourceKind, sourceKindOf } from "./explain/packet.ts";
import { listAddresses } from "./rows/service-row.ts";

/**
 * Decodes the packet of a request of the method Explain. `explainMethod` calls this function and {@link readSettings};
 * they are separate from it because it encodes the answer. Errors: INVALID_ARGUMENT for an invalid packet.
 */
export function readPacket(
  request: ExplainRequest,
  snapshot: Snapshot,
  nodeName: string,
  settings: ProxySettings,
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
  const ownAddresses = nodeAddresses(snapshot.nodes.get(nodeName), settings);
  const requested = sourceKinds.get(sourceKind);
  const source = requested ?? (parsed === undefined ? "pod" : sourceKindOf(parsed.address, ownAddresses, settings));
  return { ...target, source, sourceAddress: parsed?.address };
}

/**
 * Decodes the destination: an address and a port, or a Service, which stands for its first cluster IP and a port. A
 * headless Service stands for its first other address.
 */
function readDestination(
  { destination, port, protocol }: ExplainRequest,
  { services }: Snapshot,
): Pick<Packet, "family" | "destination" | "port" | "protocol"> {
  if (port > 65_535) throw invalid(`port ${port} exceeds the limit of 65535`);
  const wanted = protocols.get(protocol);
  const address = parseAddress(destination);
  if (address !== undefined) {
    if (port === 0) throw invalid("port is 0; with an IP address, it must be 1 to 65535");
    return { family: address.family, destination: address.address, port, protocol: wanted ?? "TCP" };
  }
  const service = services.get(destination);
  if (service === undefined) {
    throw invalid(`destination "${destination}" is neither an IP address nor the namespace/name of a Service`);
  }
  return { ...firstAddress(service), ...choosePort(service, port, wanted) };
}

function firstAddress(service: Service): Pick<Packet, "family" | "destination"> {
  const { clusterIPs, externalIPs, loadBalancerIPs, proxyName } = service;
  const [first = ""] = [clusterIPs, externalIPs, loadBalancerIPs].flatMap((set) => listAddresses(set));
  const parsed = parseAddress(first);
  if (parsed !== undefined) return { family: parsed.family, destination: parsed.address };
  const name = `destination ${serviceKey(service)}`;
  if (!isForProgram(service)) throw invalid(`${name} has no cluster IP: use an address`);
  throw invalid(`${name} has no address: it is for an external program, headless with the proxy name "${proxyName}"`);
}

function choosePort(service: Service, port: number, wanted: Protocol | undefined): Pick<Packet, "port" | "protocol"> {
  if (port !== 0) {
    const servicePort = service.ports.find((each) => each.port === port && each.protocol === (wanted ?? each.protocol));
    return { port, protocol: wanted ?? servicePort?.protocol ?? "TCP" };
  }
  const first = service.ports.find(({ protocol }) => protocol === (wanted ?? protocol));
  if (first === undefined) throw invalid(`destination ${service.namespace}/${service.name} has no such port`);
  return { port: first.port, protocol: first.protocol };
}

/** Decodes the proxy settings of a request; cluster CIDRs default to those of all Nodes. Errors: INVALID_ARGUMENT. */
export function readSettings(message: ProxySettingsMessage | undefined, { nodes }: Snapshot): ProxySettings {
  const cidrs = (field: string, texts: readonly string[] = []): readonly string[] =>
    texts.map((text) => {
      const parsed = parseCidr(text);
      if (parsed === undefined) throw invalid(`settings.${field} "${text}" is not a CIDR`);
      return parsed.cidr;
    });
  const given = cidrs("cluster_cidrs", message?.clusterCidrs);
  const clusterCIDRs = given.length > 0 ? given : [...nodes.values()].flatMap(({ podCIDRs }) => podCIDRs);
  return {
    clusterCIDRs: message?.hasNoClusterCidr === true ? "unknown" : clusterCIDRs,
    isMasqueradeAll: message?.masqueradeAll ?? false,
    nodePortAddresses: cidrs("node_port_addresses", message?.nodePortAddresses),
    isLocalhostNodePorts: message?.noLocalhostNodePorts !== true,
    moreNodeAddresses: message?.moreNodeAddresses ?? [],
  };
}

function invalid(message: string): ConnectError {
  return new ConnectError(message, Code.InvalidArgument);
}

const protocols: ReadonlyMap<ProtocolMessage, Protocol> = new Map([
  [ProtocolMessage.TCP, "TCP"],
  [ProtocolMessage.UDP, "UDP"],
  [ProtocolMessage.SCTP, "SCTP"],
]);

const sourceKinds: ReadonlyMap<SourceMessage, SourceKind> = new Map([
  [SourceMessage.POD, "pod"],
  [SourceMessage.NODE, "node"],
  [SourceMessage.OUTSIDE, "outside"],
]);
