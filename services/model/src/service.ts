import type { AddressSet } from "./address.ts";

/** Protocols that Services can have. */
export type Protocol = "TCP" | "UDP" | "SCTP";

/** `Cluster` uses all usable endpoints, `Local` only endpoints on the node. */
export type TrafficPolicy = "Cluster" | "Local";

/** Source: spec.type. */
export type ServiceType = "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName";

/** One port of a Service; each port is load-balanced separately. Source: core/v1 ServicePort. */
export interface ServicePort {
  /** "" if the Service has a single, unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1 to 65535. */
  readonly port: number;
  /** 1 to 65535, or 0 for none. */
  readonly nodePort: number;
  /** Port on the pod: a number from 1 to 65535, the name of a container port, or 0 if unknown. */
  readonly targetPort: number | string;
}

/**
 * A port with a protocol that this version does not know. No rules are made for it. Backends that print the view or
 * pass it to a program still include such a port, because the reader may know the protocol.
 */
export interface UnknownPort extends Omit<ServicePort, "protocol"> {
  /** Value of localv1.Protocol that is not in {@link Protocol}. */
  readonly protocol: number;
}

/** Restricts access to some addresses of a Service to certain clients. */
export interface IPFilter {
  /** Restricted addresses; undefined means all load-balancer IPs, the only case in Kubernetes. */
  readonly targetIPs?: AddressSet | undefined;
  /** CIDRs of the allowed clients, of either family, e.g. "10.0.0.0/8". */
  readonly sourceRanges: readonly string[];
}

/** A Service reduced to what a proxy uses. Source: core/v1 Service. */
export interface Service {
  readonly namespace: string;
  readonly name: string;
  readonly type: ServiceType;
  /**
   * metadata.creationTimestamp in seconds since 1970; undefined if unknown, e.g. from KPNG. With `uid`, it decides
   * which of several Services is served at an address that all of them claim.
   */
  readonly createdSeconds?: number | undefined;
  /** metadata.uid; undefined if unknown. */
  readonly uid?: string | undefined;
  /** Value of the label `service.kubernetes.io/service-proxy-name`; "" for the default proxy. */
  readonly proxyName: string;
  /** Only labels that the source is configured to keep. */
  readonly labels: Readonly<Record<string, string>>;
  /** Only annotations that the source is configured to keep. */
  readonly annotations: Readonly<Record<string, string>>;
  /** True if spec.clusterIP is "None". */
  readonly isHeadless: boolean;
  /**
   * Undefined if a state file omits the field, because KPNG's streams and JSON distinguish this case from an empty set.
   * Sources that read Kubernetes objects always set it.
   */
  readonly clusterIPs?: AddressSet | undefined;
  /** Undefined in the same cases as `clusterIPs`. */
  readonly externalIPs?: AddressSet | undefined;
  /** Load-balancer IPs that the node handles (ipMode VIP or unset); undefined if there is no load balancer. */
  readonly loadBalancerIPs?: AddressSet | undefined;
  /** Load-balancer IPs with ipMode Proxy: the load balancer handles them, and nodes install no rules for them. */
  readonly proxyModeLoadBalancerIPs: AddressSet;
  /** Clients that may use the load-balancer IPs; empty for all clients. */
  readonly ipFilters: readonly IPFilter[];
  /**
   * True if the Service takes its IPs as a whole: packets of all protocols and ports that no service port has go to one
   * of its endpoints, at the same port (KPNG's field MapIP). The annotation `kpng.dev/map-ip: "true"` sets it, and
   * `mapip` in a state file.
   */
  readonly mapIP: boolean;
  readonly ports: readonly ServicePort[];
  /** Received only from a newer watcher; absent if there are none. */
  readonly unknownPorts?: readonly UnknownPort[] | undefined;
  readonly internalTrafficPolicy: TrafficPolicy;
  readonly externalTrafficPolicy: TrafficPolicy;
  /** Timeout of session affinity in seconds, 1 to 86400; undefined without affinity. */
  readonly clientIPAffinitySeconds?: number | undefined;
  /** 1 to 65535, or 0 for none. */
  readonly healthCheckNodePort: number;
}

/** Identity of a Service. *Shape:* `namespace/name`; neither part contains a slash. */
export type ServiceKey = `${string}/${string}`;

/** Returns the key of a Service. */
export function serviceKey(object: { readonly namespace: string; readonly name: string }): ServiceKey {
  return `${object.namespace}/${object.name}`;
}

/** Returns the parts of a {@link serviceKey}. */
export function splitServiceKey(key: string): { readonly namespace: string; readonly name: string } {
  const slash = key.indexOf("/");
  return { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/**
 * True if clients outside the cluster can reach the Service through a node: by a node port, an external IP, or a
 * load-balancer IP that nodes handle.
 *
 * Source: kube-proxy `serviceport.go`, ExternallyAccessible. There, it is a property of each port. Here, one port with
 * a node port is enough for the whole Service, because some ports can lack a node port only if
 * allocateLoadBalancerNodePorts is false.
 */
export function isExternallyAccessible(service: Service): boolean {
  return (
    service.ports.some((port) => port.nodePort !== 0) ||
    hasAddress(service.externalIPs) ||
    hasAddress(service.loadBalancerIPs)
  );
}

/** True if the set has an address of either family. */
export function hasAddress(set: AddressSet | undefined): boolean {
  return set !== undefined && set.v4.length + set.v6.length > 0;
}
