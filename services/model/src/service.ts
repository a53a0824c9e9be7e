import type { AddressSet } from "./address.ts";

export type Protocol = "TCP" | "UDP" | "SCTP";

/** `Cluster` spreads over all usable endpoints, `Local` keeps to those on the node. */
export type TrafficPolicy = "Cluster" | "Local";

export type ServiceType = "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName";

/** One port of a Service: the unit that is load-balanced. Source: core/v1 ServicePort. */
export interface ServicePort {
  /** "" for the only, unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1 to 65535. */
  readonly port: number;
  /** 1 to 65535, or 0 for none. */
  readonly nodePort: number;
  /** Port on the pod: a number from 1 to 65535, the name of a container port, or 0 where the cluster does not say. */
  readonly targetPort: number | string;
}

/** One port of a protocol that this version does not know: shown to programs that may know it, and never served. */
export interface UnknownPort extends Omit<ServicePort, "protocol"> {
  /** Number of localv1.Protocol, beyond those of {@link Protocol}. */
  readonly protocol: number;
}

/** Lets only some clients use some addresses of a Service. */
export interface IPFilter {
  /** Undefined means all load-balancer IPs, which is all that Kubernetes can say. */
  readonly targetIPs?: AddressSet | undefined;
  /** CIDRs of the clients that are let through, of either family, e.g. "10.0.0.0/8". */
  readonly sourceRanges: readonly string[];
}

/** A Service reduced to what a proxy uses. Source: core/v1 Service. */
export interface Service {
  readonly namespace: string;
  readonly name: string;
  readonly type: ServiceType;
  /** Value of the label `service.kubernetes.io/service-proxy-name`; "" for the default proxy. */
  readonly proxyName: string;
  /** Only those that the source was told to keep. */
  readonly labels: Readonly<Record<string, string>>;
  /** Only those that the source was told to keep. */
  readonly annotations: Readonly<Record<string, string>>;
  /** spec.clusterIP is "None". */
  readonly isHeadless: boolean;
  /**
   * Undefined, here and in the next two, where a state file leaves the field out: kpng's streams and JSON keep that
   * apart from an empty set. A source that reads Kubernetes objects always gives the first two.
   */
  readonly clusterIPs?: AddressSet | undefined;
  readonly externalIPs?: AddressSet | undefined;
  /** Load-balancer IPs that the node must answer for (ipMode VIP or none); undefined if there is no load balancer. */
  readonly loadBalancerIPs?: AddressSet | undefined;
  /** Load-balancer IPs with ipMode Proxy: the load balancer keeps them, the node makes no rules for them. */
  readonly proxyModeLoadBalancerIPs: AddressSet;
  /** Who may use the load-balancer IPs; empty for everyone. */
  readonly ipFilters: readonly IPFilter[];
  /** KPNG's field of that name; no Kubernetes object sets it, a state file may. */
  readonly mapIP: boolean;
  readonly ports: readonly ServicePort[];
  /** Of a newer watcher alone; absent for none. */
  readonly unknownPorts?: readonly UnknownPort[] | undefined;
  readonly internalTrafficPolicy: TrafficPolicy;
  readonly externalTrafficPolicy: TrafficPolicy;
  /** Seconds that a client stays with its endpoint, 1 to 86400; undefined for no affinity. */
  readonly clientIPAffinitySeconds?: number | undefined;
  /** 1 to 65535, or 0 for none. */
  readonly healthCheckNodePort: number;
}

/** *Shape:* `namespace/name`; neither part contains a slash. */
export type ServiceKey = `${string}/${string}`;

export function serviceKey(object: { readonly namespace: string; readonly name: string }): ServiceKey {
  return `${object.namespace}/${object.name}`;
}

/**
 * True if anything outside the cluster can reach the Service through this node: a node port, an external IP, or a
 * load-balancer IP that the node answers for.
 *
 * Source: kube-proxy `serviceport.go`, ExternallyAccessible; of a Service rather than of a port, because all of a
 * Service's ports share its addresses and a type that gives one port a node port gives each one.
 */
export function isExternallyAccessible(service: Service): boolean {
  return (
    service.ports.some((port) => port.nodePort !== 0) ||
    hasAddress(service.externalIPs) ||
    hasAddress(service.loadBalancerIPs)
  );
}

function hasAddress(set: AddressSet | undefined): boolean {
  return set !== undefined && set.v4.length + set.v6.length > 0;
}
