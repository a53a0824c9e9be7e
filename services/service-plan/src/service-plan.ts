import type { Family } from "@kpng/model/address.ts";
import type { Protocol, Service, ServiceKey } from "@kpng/model/service.ts";

/**
 * The origin of a packet that reaches a frontend. A packet that fits two kinds belongs to the first, in this order:
 * "pod" if {@link NodePlan.podTraffic} recognizes it, "node" if its source is one of the node's own addresses, else
 * "outside".
 */
export type Sender = "pod" | "node" | "outside";

/** The fate of a packet that reaches a frontend. */
export type Route =
  | {
      readonly kind: "balance";
      /** The endpoint set to balance across; never an empty one. */
      readonly set: EndpointSetName;
      /** Whether the node's address becomes the source, so that the endpoint's answer returns through this node. */
      readonly isMasqueraded: boolean;
    }
  /** No usable endpoint exists in the cluster: answered with ICMP unreachable, or a TCP reset. */
  | { readonly kind: "refuse" }
  /** Policy Local, and usable endpoints exist on other nodes only: discarded. */
  | { readonly kind: "drop" };

/** The endpoints of traffic policy Cluster, or of policy Local. */
export type EndpointSetName = "cluster" | "local";

/** An address and port at which an endpoint serves a Service port. */
export interface EndpointAddress {
  /** Canonical, of the plan's family. */
  readonly address: string;
  /** 1 to 65535. */
  readonly port: number;
}

/** An address and port, or a node port, at which a Service port answers. */
export interface Frontend {
  readonly kind: "clusterIP" | "externalIP" | "loadBalancerIP" | "nodePort";
  /**
   * Canonical, of the plan's family; undefined for a node port, which answers at {@link NodePlan.nodePortAddresses}.
   */
  readonly address: string | undefined;
  readonly protocol: Protocol;
  /** 1 to 65535. */
  readonly port: number;
  /**
   * The clients that are let through; packets of others are dropped. Undefined for all clients. Without effect if no
   * route leads to an endpoint.
   */
  readonly sources: AllowedSources | undefined;
  /**
   * With policy Cluster, the three routes differ at most in `isMasqueraded`; with external policy Local, also in kind and
   * set.
   */
  readonly routes: Readonly<Record<Sender, Route>>;
}

/** The clients that a load-balancer IP lets through. Frontends with equal ranges share one object. */
export interface AllowedSources {
  /** Canonical CIDRs of the plan's family, at least one, none of length 0; no two are equal. */
  readonly ranges: readonly string[];
  /**
   * The load-balancer IPs with these ranges, if the ranges contain the node's address; else empty.
   *
   * A packet from one of these addresses is let through: a load-balancer IP may be an address of this node too, and
   * then it is the source of what the node sends to it. Source: kube-proxy `iptables/proxier.go`, allowFromNode.
   */
  readonly ownAddresses: readonly string[];
}

/** One Service port in one family. */
export interface ServicePortPlan {
  /** *Shape:* `namespace/name:port`, or `namespace/name` for the unnamed port. Source: kube-proxy ServicePortName. */
  readonly name: string;
  readonly protocol: Protocol;
  /** The port of its cluster IPs, external IPs and load-balancer IPs; 1 to 65535. */
  readonly port: number;
  /** ClientIP affinity: how long a client stays with its endpoint after its last connection. Undefined for none. */
  readonly affinitySeconds: number | undefined;
  /**
   * Ascending by their text, `10.0.1.7:8080` or `[fd00::7]:8080`; no two are equal. A set may have endpoints although no
   * route uses it.
   */
  readonly sets: Readonly<Record<EndpointSetName, readonly EndpointAddress[]>>;
  /**
   * Cluster IPs first, then external IPs, load-balancer IPs and the node port. All cluster IPs have the same routes, and so
   * have all other frontends. No two frontends of a Service have the same address, protocol and port.
   */
  readonly frontends: readonly Frontend[];
}

/** The answer of the health-check node port of a load balancer with external policy Local. */
export interface HealthCheckPlan {
  /** 1 to 65535. */
  readonly port: number;
  /** Distinct addresses of ready endpoints on this node. */
  readonly localEndpoints: number;
}

/** Everything that one Service needs on one node, in one family. */
export interface ServicePlan extends Pick<Service, "createdSeconds" | "uid"> {
  readonly key: ServiceKey;
  readonly family: Family;
  /** Empty for a headless Service, an ExternalName and a Service of the other family alone. */
  readonly ports: readonly ServicePortPlan[];
  /**
   * Addresses of endpoints that may become the endpoint of their own connection, by way of this node. Such a connection
   * needs masquerade, or the endpoint would answer itself directly. Ascending.
   */
  readonly hairpin: readonly string[];
  /** Undefined if the Service has none. */
  readonly healthCheck: HealthCheckPlan | undefined;
  /** Number of external IPs that are not served, because the Service has too many; undefined for none. */
  readonly omittedExternalIPs?: number;
}

/** How packets of pods are recognized. Source: kube-proxy `util/localdetector.go`. */
export type PodTraffic =
  /** By their source address. */
  | { readonly kind: "source"; readonly cidr: string }
  /** By the interface that they arrive on. */
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interfacePrefix"; readonly prefix: string };

/** The node and the administrator's settings, as far as plans of Services depend on them, in one family. */
export interface NodePlan {
  readonly family: Family;
  /** Undefined if pods cannot be told from other senders: then no packet is a pod's. */
  readonly podTraffic: PodTraffic | undefined;
  /** Every connection to a cluster IP is masqueraded, also a pod's. */
  readonly isMasqueradeAll: boolean;
  /**
   * Local addresses that serve node ports, ascending. "all" includes addresses that the node gains later, and loopback
   * addresses only as {@link NodePlan.isLoopbackNodePorts} says.
   */
  readonly nodePortAddresses: "all" | readonly string[];
  /** Node ports answer on 127.0.0.0/8 too; always false for IPv6. */
  readonly isLoopbackNodePorts: boolean;
  /** The Node's own address, internal before external; undefined if unknown. */
  readonly nodeAddress: string | undefined;
  /** CIDRs that cluster IPs are allocated from; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
}
