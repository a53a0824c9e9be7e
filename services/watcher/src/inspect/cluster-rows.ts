import { create } from "@bufbuild/protobuf";
import { type AddressSet, noAddresses } from "@kpng/model/address.ts";
import { compareText } from "@kpng/model/collections.ts";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import {
  type Endpoint as EndpointMessage,
  EndpointSchema,
  Protocol as ProtocolMessage,
  type Service as ServiceMessage,
  ServiceSchema,
  TrafficPolicy as TrafficPolicyMessage,
} from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { ListEndpointsRequest, ListServicesRequest } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type Protocol, type ServiceKey, splitServiceKey, type TrafficPolicy } from "@kpng/model/service.ts";
import type { ShardedMap } from "../store/sharded-map.ts";
import { type Snapshot, slicesOf } from "../store/snapshot.ts";
import { isDraining } from "../view/choose-endpoints.ts";

/** Filter for Services; "" matches all. */
export type ServiceFilter = Pick<ListServicesRequest, "namespace" | "name">;

/** True if a key of the form `namespace/name` matches the filter. */
export function matchesService(key: string, { namespace, name }: ServiceFilter): boolean {
  const parts = splitServiceKey(key);
  return (namespace === "" || parts.namespace === namespace) && (name === "" || parts.name === name);
}

/** Returns the matching keys after `after`, sorted. */
export function selectKeys(map: ShardedMap<unknown>, filter: ServiceFilter, after: string): readonly string[] {
  return [...map.keys()].filter((key) => key > after && matchesService(key, filter)).sort(compareText);
}

/** Returns the message of a Service in the inspection API; none if it does not exist. Pure; O(endpoints). */
export function serviceRows(snapshot: Snapshot, key: string): readonly ServiceMessage[] {
  const service = snapshot.services.get(key);
  if (service === undefined) return [];
  const row = create(ServiceSchema, {
    namespace: service.namespace,
    name: service.name,
    type: service.type,
    serviceProxyName: service.proxyName,
    isHeadless: service.isHeadless,
    clusterIps: listAddresses(service.clusterIPs),
    externalIps: listAddresses(service.externalIPs),
    loadBalancerIps: listAddresses(service.loadBalancerIPs),
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
    endpoints: countEndpoints(slicesOf(snapshot, key as ServiceKey)),
    labels: { ...service.labels },
  });
  return [row];
}

export function listAddresses({ v4, v6 }: AddressSet = noAddresses): string[] {
  return [...v4, ...v6];
}

/** Converts a protocol. Protocols that only newer watchers know, which are numbers, become UNSPECIFIED. */
export function protocolMessage(protocol: Protocol | number | undefined): ProtocolMessage {
  return typeof protocol === "string" ? ProtocolMessage[protocol] : ProtocolMessage.UNSPECIFIED;
}

function policyMessage(policy: TrafficPolicy): TrafficPolicyMessage {
  return policy === "Local" ? TrafficPolicyMessage.LOCAL : TrafficPolicyMessage.CLUSTER;
}

export function countEndpoints(slices: readonly EndpointSlice[]) {
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

/** Yields the messages of the endpoints of a Service that match the filter. Pure. */
export function* endpointRows(
  snapshot: Snapshot,
  key: string,
  { node, endpoint: text }: Pick<ListEndpointsRequest, "node" | "endpoint">,
): Iterable<EndpointMessage> {
  for (const slice of slicesOf(snapshot, key as ServiceKey)) {
    for (const endpoint of slice.endpoints) {
      const { podName, nodeName, addresses } = endpoint;
      const names = [podName, ...addresses.v4, ...addresses.v6];
      if ((node === "" || nodeName === node) && (text === "" || names.includes(text)))
        yield endpointRow(slice, endpoint);
    }
  }
}

/** Key of an endpoint row in a watch. *Shape:* `namespace/service/slice/address`. */
export function endpointRowKey({ namespace, service, slice, addresses }: EndpointMessage): string {
  return `${namespace}/${service}/${slice}/${addresses[0] ?? ""}`;
}

function endpointRow(slice: EndpointSlice, endpoint: Endpoint): EndpointMessage {
  const { conditions } = endpoint;
  return create(EndpointSchema, {
    namespace: slice.namespace,
    service: slice.serviceName,
    slice: slice.name,
    addresses: listAddresses(endpoint.addresses),
    ports: endpoint.ports.map(({ name, port, protocol }) => ({ name, port, protocol: protocolMessage(protocol) })),
    pod: endpoint.podName,
    node: endpoint.nodeName,
    zone: endpoint.zone,
    isReady: conditions.ready,
    isServing: conditions.serving,
    isTerminating: conditions.terminating,
    hintedZones: [...endpoint.hintedZones],
    hintedNodes: [...endpoint.hintedNodes],
  });
}
