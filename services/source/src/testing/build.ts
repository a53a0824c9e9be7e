import { toAddressSet } from "@kpng/model/address.ts";
import type { Endpoint, EndpointPort, EndpointSlice } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service, ServicePort } from "@kpng/model/service.ts";
import { service as serviceView } from "@kpng/model/testing/views.ts";

// Builders of cluster objects, for the tests of all packages. A test passes only the fields that matter to it.

export function servicePort(port: Partial<ServicePort> = {}): ServicePort {
  return { name: "http", protocol: "TCP", port: 80, nodePort: 0, targetPort: 8080, ...port };
}

export function service(fields: Partial<Service> & { readonly clusterIP?: string } = {}): Service {
  const { clusterIP = "10.96.0.1", ...others } = fields;
  const { loadBalancerIPs: _none, ...plain } = serviceView("ns/web", { ips: [clusterIP] }).service;
  return { ...plain, ports: [servicePort()], ...others };
}

export function addresses(...texts: string[]) {
  return toAddressSet(texts).set;
}

export const ready = { ready: true, serving: true, terminating: false };
export const draining = { ready: false, serving: true, terminating: true };
export const starting = { ready: false, serving: false, terminating: false };
export const dead = { ready: false, serving: false, terminating: true };

export const httpPort: EndpointPort = { name: "http", port: 8080, protocol: "TCP" };

export function endpoint(address: string | readonly string[], fields: Partial<Endpoint> = {}): Endpoint {
  return {
    addresses: addresses(...[address].flat()),
    ports: [httpPort],
    conditions: ready,
    podName: "",
    hostname: "",
    nodeName: "n1",
    zone: "",
    hintedZones: [],
    hintedNodes: [],
    ...fields,
  };
}

export function slice(endpoints: readonly Endpoint[], fields: Partial<EndpointSlice> = {}): EndpointSlice {
  return { namespace: "ns", name: "web-a", serviceName: "web", endpoints, hasPodKeys: false, ...fields };
}

export function node(name: string, fields: Partial<Node> = {}): Node {
  return { name, zone: "", labels: {}, annotations: {}, addresses: [], podCIDRs: [], isEligible: true, ...fields };
}
