import { noAddresses } from "@kpng/model/address.ts";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import { shareConditions, shareText } from "@kpng/model/shared-values.ts";

/** Synthetic cluster without API server: Services of equal size, pods spread evenly over nodes, three zones. */
export interface SyntheticShape {
  readonly services: number;
  /** Endpoints per Service. */
  readonly endpoints: number;
  readonly nodes: number;
}

const zones = 3;

/** Default of the EndpointSlice controller. */
const endpointsPerSlice = 100;

export const namespace = "scale";

export interface SyntheticCluster {
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
  readonly nodes: readonly Node[];
}

export function makeCluster(shape: SyntheticShape): SyntheticCluster {
  const indexes = Array.from({ length: shape.services }, (_, index) => index);
  return {
    services: indexes.map((index) => makeService(index)),
    slices: indexes.flatMap((index) => makeSlices(`service-${index}`, makeEndpoints(index, shape))),
    nodes: Array.from({ length: shape.nodes }, (_, index) => makeNode(index)),
  };
}

export function makeNode(index: number): Node {
  return {
    name: `node-${index}`,
    zone: `zone-${index % zones}`,
    labels: {},
    annotations: {},
    addresses: [`192.168.${(index >> 8) & 255}.${index & 255}`],
    podCIDRs: [`10.${(index >> 8) & 255}.${index & 255}.0/24`],
    isEligible: true,
  };
}

export function makeService(index: number): Service {
  return {
    namespace,
    name: `service-${index}`,
    type: "ClusterIP",
    proxyName: "",
    labels: {},
    annotations: {},
    isHeadless: false,
    clusterIPs: { v4: [`172.${16 + ((index >> 16) & 15)}.${(index >> 8) & 255}.${index & 255}`], v6: [] },
    externalIPs: noAddresses,
    proxyModeLoadBalancerIPs: noAddresses,
    ipFilters: [],
    mapIP: false,
    ports: [{ name: "http", protocol: "TCP", port: 80, nodePort: 0, targetPort: 8080 }],
    internalTrafficPolicy: "Cluster",
    externalTrafficPolicy: "Cluster",
    healthCheckNodePort: 0,
  };
}

/** Returns all endpoints of a Service, in order. */
export function makeEndpoints(service: number, shape: SyntheticShape): Endpoint[] {
  return Array.from({ length: shape.endpoints }, (_, index) =>
    makeEndpoint(`service-${service}-6f7c9b8d4`, service * shape.endpoints + index, shape),
  );
}

/** Shared by all slices, as in decoded slices; see decode-slice.ts. */
const ports = [{ name: "http", port: 8080, protocol: "TCP" }] as const;
const none: readonly string[] = [];

/** Returns the endpoint of one pod. `number` is unique in the cluster and determines address and node. */
export function makeEndpoint(replicaSet: string, number: number, shape: SyntheticShape): Endpoint {
  const node = number % shape.nodes;
  const zone = shareText(`zone-${node % zones}`);
  return {
    addresses: { v4: [`10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`], v6: none },
    ports,
    conditions: shareConditions(true, true, false),
    podName: `${replicaSet}-${(number + 46_656).toString(36)}`,
    hostname: "",
    nodeName: shareText(`node-${node}`),
    zone,
    hintedZones: none,
    hintedNodes: none,
  };
}

/** Splits a Service's endpoints into slices. */
export function makeSlices(serviceName: string, endpoints: readonly Endpoint[]): EndpointSlice[] {
  return Array.from({ length: Math.ceil(endpoints.length / endpointsPerSlice) }, (_, index) => ({
    namespace,
    name: `${serviceName}-${index}`,
    serviceName,
    endpoints: endpoints.slice(index * endpointsPerSlice, (index + 1) * endpointsPerSlice),
    hasPodKeys: false,
  }));
}

/** Returns the slice with the readiness of one endpoint changed. */
export function withReadiness(slice: EndpointSlice, index: number, ready: boolean): EndpointSlice {
  const endpoints = slice.endpoints.map((endpoint, other) =>
    other === index ? { ...endpoint, conditions: shareConditions(ready, ready, false) } : endpoint,
  );
  return { ...slice, endpoints };
}
