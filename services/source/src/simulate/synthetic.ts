import { noAddresses } from "@kpng/model/address.ts";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import { shareConditions, shareText } from "@kpng/model/shared-values.ts";
import type { ObjectChange } from "../source.ts";

/** Shape of a synthetic cluster: Services of equal size, pods spread evenly over nodes, three zones. */
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

interface SyntheticCluster {
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

function makeNode(index: number): Node {
  return {
    name: `node-${index}`,
    zone: `zone-${index % zones}`,
    labels: {},
    annotations: {},
    addresses: [`${192 + (index >> 16)}.168.${(index >> 8) & 255}.${index & 255}`],
    podCIDRs: [`${10 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}.0/24`],
    isEligible: true,
  };
}

/** Returns a Service. Its cluster IP follows from its index. */
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

/**
 * Returns all endpoints of a Service, in order. Each `generation` has other pods, with other addresses, as after a
 * rollout.
 */
export function makeEndpoints(service: number, shape: SyntheticShape, generation = 0): Endpoint[] {
  const first = (generation * shape.services + service) * shape.endpoints;
  return Array.from({ length: shape.endpoints }, (_, index) =>
    makeEndpoint(`service-${service}-6f7c9b8d4`, first + index, shape),
  );
}

/** Shared by all slices, as in decoded slices; see decode-slice.ts. */
const ports = [{ name: "http", port: 8080, protocol: "TCP" }] as const;
const none: readonly string[] = [];

/** Returns the endpoint of one pod. `number` is unique in the cluster and determines address and node. */
function makeEndpoint(replicaSet: string, number: number, shape: SyntheticShape): Endpoint {
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

/** Distance between the Services of consecutive changes; a prime, so that every Service is reached. */
const stride = 7_919;

/** Returns change number `index`: an even one makes an endpoint unready, and the next one makes it ready again. */
export function endpointChange(index: number, shape: SyntheticShape): ObjectChange {
  const pair = Math.floor(index / 2);
  const service = (pair * stride) % shape.services;
  const [slice] = makeSlices(`service-${service}`, makeEndpoints(service, shape));
  if (slice === undefined) throw new Error("the cluster has no endpoints");
  const [changed, isReady] = [pair % slice.endpoints.length, index % 2 === 1];
  const conditions = shareConditions(isReady, isReady, false);
  const endpoints = slice.endpoints.map((endpoint, at) => (at === changed ? { ...endpoint, conditions } : endpoint));
  return { kind: "put-slice", slice: { ...slice, endpoints } };
}
