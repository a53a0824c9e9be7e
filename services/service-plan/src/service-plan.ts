import type { Family } from "@kpng/model/address.ts";
import type { Protocol, ServiceKey } from "@kpng/model/service.ts";

/**
 * Who sends a packet to a frontend. A packet that fits two kinds is of the first that fits, in this order: "pod" if
 * {@link NodePlan.podTraffic} recognizes it, "node" if its source is one of the node's own addresses, else "outside".
 */
export type Sender = "pod" | "node" | "outside";

/** Where a packet goes that reaches a frontend. */
export type Route =
  | {
      readonly kind: "balance";
      /** Which of the port's endpoint sets; never an empty one. */
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
  /** Canonical, of the plan's family; undefined for a node port, which answers at {@link NodePlan.nodePortAddresses}. */
  readonly address: string | undefined;
  readonly protocol: Protocol;
  /** 1 to 65535. */
  readonly port: number;
  /** Only for these senders; others are dropped. Undefined for all. */
  readonly sources: AllowedSources | undefined;
  readonly routes: Readonly<Record<Sender, Route>>;
}

/** The clients that a load-balancer IP lets through. */
export interface AllowedSources {
  /** Canonical CIDRs of the plan's family, none of length 0; possibly empty, which lets nobody through. */
  readonly ranges: readonly string[];
  /**
   * Whether the ranges include this node. Its own packets to a load-balancer IP that is one of its addresses carry that
   * IP as source, so a packet from one of these addresses is let through too.
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
  /** Ascending by address and port as text; no two are equal. A set that no route uses may still be filled. */
  readonly sets: Readonly<Record<EndpointSetName, readonly EndpointAddress[]>>;
  readonly frontends: readonly Frontend[];
}

/** What the health-check node port of a load balancer with external policy Local answers. */
export interface HealthCheckPlan {
  /** 1 to 65535. */
  readonly port: number;
  /** Distinct addresses of ready endpoints on this node. */
  readonly localEndpoints: number;
}

/** What one Service needs on one node, in one family. */
export interface ServicePlan {
  readonly key: ServiceKey;
  readonly family: Family;
  /** Empty for a headless Service, an ExternalName and a Service of the other family alone. */
  readonly ports: readonly ServicePortPlan[];
  /**
   * Addresses of endpoints that may be given themselves as endpoint, by way of this node. Such a connection needs
   * masquerade, or the endpoint would answer itself directly. Ascending.
   */
  readonly hairpin: readonly string[];
  /** Undefined if the Service has none. */
  readonly healthCheck: HealthCheckPlan | undefined;
}

/** How packets of pods are recognized. Source: kube-proxy `util/localdetector.go`. */
export type PodTraffic =
  /** By their source address. */
  | { readonly kind: "source"; readonly cidr: string }
  /** By the interface that they arrive on. */
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interfacePrefix"; readonly prefix: string };

/** What the plan of every Service depends on besides the Service: the node and the administrator's settings, in one family. */
export interface NodePlan {
  readonly family: Family;
  /** Undefined if pods cannot be told from other senders: then no packet is a pod's. */
  readonly podTraffic: PodTraffic | undefined;
  /** Every connection to a cluster IP is masqueraded, whoever sends it. */
  readonly isMasqueradeAll: boolean;
  /** Local addresses that serve node ports; "all" includes addresses that the node gains later. */
  readonly nodePortAddresses: "all" | readonly string[];
  /** Node ports answer on 127.0.0.0/8 too; always false for IPv6. */
  readonly isLoopbackNodePorts: boolean;
  /** The Node's own address, internal before external; undefined if unknown. */
  readonly nodeAddress: string | undefined;
  /** CIDRs that cluster IPs are allocated from; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
}
