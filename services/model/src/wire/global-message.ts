import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { noAddresses } from "../address.ts";
import type { Endpoint, EndpointSlice } from "../endpoint.ts";
import {
  ClusterInfoSchema,
  type EndpointInfo,
  EndpointInfoSchema,
  NodeInfoSchema,
  NodeSchema,
  ServiceInfoSchema,
} from "../gen/globalv1/api_pb.ts";
import { type Endpoint as EndpointMessage, EndpointUseSchema } from "../gen/localv1/api_pb.ts";
import type { Node } from "../node.ts";
import type { Service } from "../service.ts";
import { shareConditions, sharePorts, shareText } from "../shared-values.ts";
import { hashBytes } from "./digest.ts";
import { decodeEndpointPort, firstToFront, setFirstAddresses } from "./endpoint-message.ts";
import { decodeNodeMessage, encodeNode } from "./local-message.ts";
import { WireError } from "./protobuf.ts";
import {
  decodeAddresses,
  decodeCidr,
  decodeServiceMessage,
  encodeAddresses,
  encodeProtocol,
  encodeService,
  setIfDefined,
  sortedByKey,
} from "./service-message.ts";

/**
 * Encodes a ServiceInfo; if `isExtended`, it includes the fields that KPNG does not have. Global messages carry the
 * whole cluster state, from a watcher to a relay and in recordings.
 */
export function encodeServiceInfo(service: Service, isExtended: boolean): Uint8Array {
  const message = create(ServiceInfoSchema, { Service: encodeService(service, isExtended ? {} : undefined) });
  // Only KPNG's relays read the Hash, and they do not get the proxy name.
  message.Hash = hashBytes(toBinary(ServiceInfoSchema, message));
  if (isExtended) message.ServiceProxyName = service.proxyName;
  return toBinary(ServiceInfoSchema, message);
}

/** Decodes the Service in an encoded ServiceInfo. Errors: WireError. */
export function decodeServiceInfo(bytes: Uint8Array): Service {
  const info = fromBinary(ServiceInfoSchema, bytes);
  if (info.Service === undefined) throw new WireError("a ServiceInfo has no Service");
  return decodeServiceMessage(info.Service, info.ServiceProxyName);
}

/** Returns KPNG's hash of an endpoint: XXH64 of Endpoint, Conditions and Topology (`proxystore.go:300`). */
export function endpointInfoHash(endpoint: Endpoint): bigint {
  return hashBytes(toBinary(EndpointInfoSchema, create(EndpointInfoSchema, identifyingFields(endpoint))));
}

/** Returns the fields that KPNG's hash of an endpoint covers; any other field would change the hash. */
function identifyingFields(endpoint: Endpoint) {
  return {
    Endpoint: {
      Hostname: endpoint.hostname,
      IPs: encodeAddresses(endpoint.addresses) ?? {},
      PortOverrides: endpoint.ports.map((port) => ({ Name: port.name, Port: port.port })),
    },
    Conditions: { Ready: endpoint.conditions.ready },
    // Always set, because KPNG's clients dereference it.
    Topology: { Node: endpoint.nodeName, Zone: endpoint.zone },
  };
}

/**
 * Encodes an EndpointInfo. Hints are mixed into the Hash, because KPNG's hash does not cover them, and KPNG's relay
 * ignores an endpoint whose Hash has not changed.
 */
export function encodeEndpointInfo(slice: EndpointSlice, endpoint: Endpoint, isExtended: boolean): Uint8Array {
  const hints =
    endpoint.hintedZones.length > 0 || (isExtended && endpoint.hintedNodes.length > 0)
      ? { Zones: [...endpoint.hintedZones], ...(isExtended ? { Nodes: [...endpoint.hintedNodes] } : {}) }
      : undefined;
  const message = create(EndpointInfoSchema, {
    ...identifyingFields(endpoint),
    Namespace: slice.namespace,
    SourceName: slice.name,
    ServiceName: slice.serviceName,
    PodName: endpoint.podName,
    ...setIfDefined("Hints", hints),
  });
  const hash = endpointInfoHash(endpoint);
  message.Hash = hints === undefined ? hash : hash ^ hashBytes(toBinary(EndpointInfoSchema, message));
  if (isExtended) {
    extend(message, endpoint);
    message.HasPodKeys = slice.hasPodKeys;
  }
  return toBinary(EndpointInfoSchema, message);
}

function extend(message: EndpointInfo, endpoint: Endpoint): void {
  if (message.Conditions !== undefined) {
    message.Conditions.Serving = endpoint.conditions.serving;
    message.Conditions.Terminating = endpoint.conditions.terminating;
  }
  if (message.Endpoint !== undefined) extendEndpoint(message.Endpoint, endpoint);
}

function extendEndpoint(message: EndpointMessage, endpoint: Endpoint): void {
  message.PortOverrides.forEach((port, index) => {
    const protocol = endpoint.ports[index]?.protocol;
    if (protocol !== undefined) port.Protocol = encodeProtocol(protocol);
  });
  setFirstAddresses(message, endpoint.addresses);
  // Marks Serving and Terminating as set, because proto3 cannot distinguish false from a field that was never sent.
  message.Use = create(EndpointUseSchema, { Ready: endpoint.conditions.ready });
}

/** Decodes the endpoint in an encoded EndpointInfo, and the slice that it belongs to. Errors: WireError. */
export function decodeEndpointInfo(bytes: Uint8Array): {
  readonly slice: Omit<EndpointSlice, "endpoints">;
  readonly endpoint: Endpoint;
} {
  const info = fromBinary(EndpointInfoSchema, bytes);
  if (info.Namespace === "" || info.ServiceName === "") throw new WireError("an EndpointInfo has no Service");
  const ready = info.Conditions?.Ready ?? true;
  // See `extendEndpoint`.
  const isExtended = info.Endpoint?.Use !== undefined;
  return {
    slice: {
      namespace: info.Namespace,
      name: info.SourceName === "" ? info.ServiceName : info.SourceName,
      serviceName: info.ServiceName,
      // KPNG does not send HasPodKeys. In its streams, a slice without a name of its own comes from a state file.
      hasPodKeys: isExtended ? info.HasPodKeys : info.SourceName === "" || info.SourceName === info.ServiceName,
    },
    endpoint: {
      addresses: firstToFront(
        decodeAddresses(info.Endpoint?.IPs) ?? noAddresses,
        decodeAddresses(info.Endpoint?.FirstIPs),
      ),
      ports: sharePorts(info.Endpoint?.PortOverrides.map(decodeEndpointPort) ?? []),
      conditions: shareConditions(
        ready,
        isExtended ? (info.Conditions?.Serving ?? ready) : ready,
        isExtended ? (info.Conditions?.Terminating ?? false) : false,
      ),
      podName: info.PodName,
      hostname: info.Endpoint?.Hostname ?? "",
      nodeName: shareText(info.Topology?.Node ?? ""),
      zone: shareText(info.Topology?.Zone ?? ""),
      hintedZones: info.Hints?.Zones ?? [],
      hintedNodes: info.Hints?.Nodes ?? [],
    },
  };
}

/** Encodes a ClusterInfo. */
export function encodeClusterInfo(serviceCIDRs: readonly string[]): Uint8Array {
  return toBinary(ClusterInfoSchema, create(ClusterInfoSchema, { ServiceCIDRs: [...serviceCIDRs] }));
}

/** Decodes the CIDRs of cluster IPs in an encoded ClusterInfo. Errors: WireError. */
export function decodeClusterInfo(bytes: Uint8Array): readonly string[] {
  return fromBinary(ClusterInfoSchema, bytes).ServiceCIDRs.map(decodeCidr);
}

/** Encodes a NodeInfo; if `isExtended`, it includes the fields that the node's proxy needs. */
export function encodeNodeInfo(node: Node, isExtended: boolean): Uint8Array {
  const message = create(NodeSchema, {
    Name: node.name,
    Topology: { Node: node.name, Zone: node.zone },
    Labels: sortedByKey(node.labels),
    Annotations: sortedByKey(node.annotations),
    ...(isExtended ? { Local: encodeNode({ ...node, serviceCIDRs: [] }) } : {}),
  });
  return toBinary(
    NodeInfoSchema,
    create(NodeInfoSchema, { Hash: hashBytes(toBinary(NodeSchema, message)), Node: message }),
  );
}

/** Decodes the Node in an encoded NodeInfo. Errors: WireError. */
export function decodeNodeInfo(bytes: Uint8Array): Node {
  const message = fromBinary(NodeInfoSchema, bytes).Node;
  if (message === undefined || message.Name === "") throw new WireError("a NodeInfo has no name");
  const local = message.Local === undefined ? undefined : decodeNodeMessage(message.Local);
  return {
    name: message.Name,
    zone: message.Topology?.Zone ?? "",
    labels: message.Labels,
    annotations: message.Annotations,
    addresses: local?.addresses ?? [],
    podCIDRs: local?.podCIDRs ?? [],
    isEligible: local?.isEligible ?? true,
  };
}
