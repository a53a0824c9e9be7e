import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type AddressSet, noAddresses } from "@kpng/model/address.ts";
import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import {
  type EndpointCountsSchema,
  Protocol as ProtocolMessage,
  type Service as ServiceMessage,
  ServiceSchema,
  TrafficPolicy as TrafficPolicyMessage,
} from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { Protocol, Service, TrafficPolicy } from "@kpng/model/service.ts";
import { isDraining } from "../../view/choose-endpoints.ts";

/**
 * Converts a Service to its message in the inspection API, with counts of its endpoints. `kpng get services` shows it.
 * Pure; O(endpoints). Separate, because ListServices, WatchServices and `LiveState` of the status page share it.
 */
export function serviceRow(service: Service, slices: readonly EndpointSlice[]): ServiceMessage {
  return create(ServiceSchema, {
    namespace: service.namespace,
    name: service.name,
    type: service.type,
    serviceProxyName: service.proxyName,
    isHeadless: service.isHeadless,
    clusterIps: listAddresses(service.clusterIPs),
    externalIps: listAddresses(service.externalIPs),
    loadBalancerIps: listAddresses(service.loadBalancerIPs),
    proxyModeLoadBalancerIps: listAddresses(service.proxyModeLoadBalancerIPs),
    sourceRanges: [...new Set(service.ipFilters.flatMap(({ sourceRanges }) => sourceRanges))],
    ports: service.ports.map(({ name, protocol, port, nodePort, targetPort }) => ({
      name,
      protocol: protocolMessage(protocol),
      port,
      nodePort,
      targetPort: targetPort === 0 ? "" : String(targetPort),
    })),
    internalTrafficPolicy: policyMessage(service.internalTrafficPolicy),
    externalTrafficPolicy: policyMessage(service.externalTrafficPolicy),
    affinitySeconds: service.clientIPAffinitySeconds ?? 0,
    healthCheckNodePort: service.healthCheckNodePort,
    endpoints: countEndpoints(slices),
    labels: { ...service.labels },
    ...(service.createdSeconds === undefined ? {} : { createdAt: timestampFromMs(service.createdSeconds * 1000) }),
    uid: service.uid ?? "",
  });
}

/** Returns the addresses of both families, IPv4 first. */
export function listAddresses({ v4, v6 }: AddressSet = noAddresses): string[] {
  return [...v4, ...v6];
}

/** Converts a protocol. Protocols of newer watchers, which are numbers, become UNSPECIFIED. */
export function protocolMessage(protocol: Protocol | number | undefined): ProtocolMessage {
  switch (protocol) {
    case "TCP":
      return ProtocolMessage.TCP;
    case "UDP":
      return ProtocolMessage.UDP;
    case "SCTP":
      return ProtocolMessage.SCTP;
    default:
      return ProtocolMessage.UNSPECIFIED;
  }
}

function policyMessage(policy: TrafficPolicy): TrafficPolicyMessage {
  return policy === "Local" ? TrafficPolicyMessage.LOCAL : TrafficPolicyMessage.CLUSTER;
}

function countEndpoints(slices: readonly EndpointSlice[]): MessageInitShape<typeof EndpointCountsSchema> {
  const counts = { ready: 0, terminating: 0, notReady: 0 };
  for (const { endpoints } of slices) {
    for (const endpoint of endpoints) {
      if (endpoint.conditions.ready) counts.ready += 1;
      else if (isDraining(endpoint)) counts.terminating += 1;
      else counts.notReady += 1;
    }
  }
  return counts;
}
