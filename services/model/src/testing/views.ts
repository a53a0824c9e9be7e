import { type AddressSet, toAddressSet } from "../address.ts";
import { compareText } from "../collections.ts";
import type { FamilyFlags, NodeView, ServiceView, ViewEndpoint, ViewNode } from "../node-view.ts";
import { type Protocol, type Service, type ServiceKey, type ServicePort, serviceKey } from "../service.ts";

/** Builders of views, with only the fields that a test is about. */

export function view(services: readonly ServiceView[], node?: Partial<ViewNode>): NodeView {
  const entries = services.map((service) => [serviceKey(service.service), service] as const);
  return {
    nodeName: "n1",
    node: { name: "n1", zone: "", addresses: [], podCIDRs: [], serviceCIDRs: [], isEligible: true, ...node },
    services: new Map<ServiceKey, ServiceView>(entries.sort(([a], [b]) => compareText(a, b))),
  };
}

export interface ServiceParts extends Partial<Omit<Service, "clusterIPs" | "externalIPs" | "loadBalancerIPs">> {
  readonly ips?: readonly string[];
  readonly externalIPs?: readonly string[];
  readonly loadBalancerIPs?: readonly string[];
  readonly endpoints?: readonly ViewEndpoint[];
  readonly portHasEndpoints?: readonly FamilyFlags[];
}

/** *Shape of `path`:* `namespace/name`. */
export function service(path: string, parts: ServiceParts = {}): ServiceView {
  const [namespace = "", name = ""] = path.split("/");
  const { ips = ["10.96.0.10"], externalIPs, loadBalancerIPs, endpoints = [], portHasEndpoints, ...rest } = parts;
  return {
    service: {
      namespace,
      name,
      type: "ClusterIP",
      proxyName: "",
      labels: {},
      annotations: {},
      isHeadless: false,
      clusterIPs: set(ips),
      externalIPs: set(externalIPs ?? []),
      loadBalancerIPs: loadBalancerIPs === undefined ? undefined : set(loadBalancerIPs),
      proxyModeLoadBalancerIPs: set([]),
      ipFilters: [],
      mapIP: false,
      ports: [port(80)],
      internalTrafficPolicy: "Cluster",
      externalTrafficPolicy: "Cluster",
      healthCheckNodePort: 0,
      ...rest,
    },
    portHasEndpoints,
    endpoints,
  };
}

export function port(number: number, parts: Partial<ServicePort> & { readonly protocol?: Protocol } = {}): ServicePort {
  return { name: "", protocol: "TCP", port: number, nodePort: 0, targetPort: number, ...parts };
}

export function endpoint(address: string, parts: Partial<ViewEndpoint> = {}): ViewEndpoint {
  return {
    key: address,
    addresses: set([address]),
    ports: [],
    hostname: "",
    podName: "",
    nodeName: "",
    isOnNode: false,
    use: { cluster: true, local: false },
    conditions: { ready: true, serving: true, terminating: false },
    scopes: { internal: true, external: true },
    ...parts,
  };
}

function set(addresses: readonly string[]): AddressSet {
  return toAddressSet(addresses).set;
}
