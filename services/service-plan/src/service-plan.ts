import type { Family } from "@kpng/model/address.ts";
import type { Protocol, Service, ServiceKey } from "@kpng/model/service.ts";

/**
 * The origin of a packet that reaches a frontend: "pod" if {@link NodePlan.podTraffic} recognizes it, otherwise "node"
 * if its source is one of the node's own addresses, otherwise "outside".
 */
export type Sender = "pod" | "node" | "outside";

/** The fate of a packet that reaches a frontend. */
export type Route =
  | {
      readonly kind: "balance";
      /** The endpoint set to balance across; never an empty set. */
      readonly set: EndpointSetName;
      /**
       * True if the source is replaced by the node's address, so that the endpoint's answer returns through this node.
       */
      readonly isMasqueraded: boolean;
    }
  /** No usable endpoint exists in the cluster; the packet is rejected with ICMP unreachable or a TCP reset. */
  | { readonly kind: "refuse" }
  /** The policy is Local and usable endpoints exist only on other nodes; the packet is discarded. */
  | { readonly kind: "drop" };

/** Name of an endpoint set: the endpoints for traffic policy Cluster, or for policy Local. */
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
   * The clients that are let through; packets from others are dropped. Undefined for all clients. If no route leads to
   * an endpoint, only the nftables rules drop packets from others, as in kube-proxy's nftables mode; the other backends
   * then ignore the sources.
   */
  readonly sources: AllowedSources | undefined;
  /**
   * With policy Cluster, the three routes differ at most in `isMasqueraded`; with external policy Local, also in kind
   * and set.
   */
  readonly routes: Readonly<Record<Sender, Route>>;
}

/** The clients that a load-balancer IP lets through. Frontends with equal ranges share one object. */
export interface AllowedSources {
  /** Canonical, distinct CIDRs of the plan's family; at least one, and none with length 0. */
  readonly ranges: readonly string[];
  /**
   * The load-balancer IPs with these ranges if the ranges contain the node's address; otherwise empty.
   *
   * A packet from one of these addresses is let through: a load-balancer IP may also be an address of this node, and
   * then it is the source of packets that the node sends to it. Source: kube-proxy `iptables/proxier.go`,
   * allowFromNode.
   */
  readonly ownAddresses: readonly string[];
}

/** The plan of one Service port in one family. */
export interface ServicePortPlan {
  /** *Shape:* `namespace/name:port`, or `namespace/name` for the unnamed port. Source: kube-proxy ServicePortName. */
  readonly name: string;
  readonly protocol: Protocol;
  /** The port at the Service's cluster IPs, external IPs and load-balancer IPs; 1 to 65535. */
  readonly port: number;
  /**
   * ClientIP affinity: how long a client stays with its endpoint after its last connection. Undefined for no affinity.
   */
  readonly affinitySeconds: number | undefined;
  /**
   * Distinct endpoints, sorted by their text form, `10.0.1.7:8080` or `[fd00::7]:8080`. A set may contain endpoints
   * even if no route uses it.
   */
  readonly sets: Readonly<Record<EndpointSetName, readonly EndpointAddress[]>>;
  /**
   * Cluster IPs first, then external IPs, load-balancer IPs and the node port. All cluster IPs have the same routes,
   * and so do all other frontends. No two frontends of a Service have the same address, protocol and port.
   */
  readonly frontends: readonly Frontend[];
}

/**
 * An address that a Service takes as a whole: every packet of any protocol and port (TCP, UDP, SCTP, ICMP echo, …) that
 * no frontend of a port takes goes to an endpoint, with its port unchanged.
 */
export interface WholeFrontend extends Pick<Frontend, "sources" | "routes"> {
  /** A node port has no address, so it is never among them. */
  readonly kind: Exclude<Frontend["kind"], "nodePort">;
  /** Canonical, of the plan's family. The node leaves packets to its own addresses alone. */
  readonly address: string;
  readonly protocol?: undefined;
  readonly port?: undefined;
  /**
   * The port frontends of all Services at this address, in a fixed order. They come first, also where they refuse or
   * drop a packet. Empty until {@link FrontendClaims.withOwned} fills it in, because only the claims know other
   * Services.
   */
  readonly except: readonly Pick<Frontend, "protocol" | "port">[];
}

/** An endpoint of a whole address, which gets packets at every port. */
export interface WholeEndpoint {
  /** Canonical, of the plan's family. */
  readonly address: string;
  readonly port?: undefined;
}

/**
 * The plan of the addresses that a Service takes as a whole, in one family. It has the fields of a
 * {@link ServicePortPlan} except protocol and port, so that rules of both can be rendered in the same way.
 *
 * The addresses, policies, affinity, masquerading and source ranges are those of the Service's ports. A headless
 * Service has them, too, at its external and load-balancer IPs; its ports have no frontends.
 */
export interface WholeAddressPlan extends Pick<ServicePortPlan, "affinitySeconds"> {
  /** *Shape:* `namespace/name`. */
  readonly name: string;
  readonly protocol?: undefined;
  readonly port?: undefined;
  /** Distinct, ascending. An endpoint is usable if it is for any port. */
  readonly sets: Readonly<Record<EndpointSetName, readonly WholeEndpoint[]>>;
  /** At least one; in the order and with the routes of {@link ServicePortPlan.frontends}. */
  readonly frontends: readonly WholeFrontend[];
}

/** The response of the health-check node port of a load balancer with external policy Local. */
export interface HealthCheckPlan {
  /** 1 to 65535. */
  readonly port: number;
  /** Number of distinct addresses of ready endpoints on this node. */
  readonly localEndpoints: number;
}

/**
 * The plan of one Service on one node, in one family: what must happen to packets to the Service, whatever the kernel
 * mechanism. `planService` makes it, and backends translate it to rules.
 */
export interface ServicePlan extends Pick<Service, "createdSeconds" | "uid"> {
  readonly key: ServiceKey;
  readonly family: Family;
  /** Empty for a headless Service, an ExternalName, and a Service with cluster IPs of only the other family. */
  readonly ports: readonly ServicePortPlan[];
  /** Absent unless the Service asks for whole addresses (`Service.mapIP`) and has an address in this family. */
  readonly whole?: WholeAddressPlan | undefined;
  /**
   * Addresses of endpoints that may be selected, by way of this node, as the endpoint of their own connections;
   * ascending. Such a connection must be masqueraded, or the endpoint would answer itself directly.
   */
  readonly hairpin: readonly string[];
  /** Undefined if the Service has no health check. */
  readonly healthCheck: HealthCheckPlan | undefined;
  /** Number of external IPs that exceed `maxExternalFrontends` and are not served; undefined for none. */
  readonly omittedExternalIPs?: number;
}

/** How packets from pods are recognized. Source: kube-proxy `util/localdetector.go`. */
export type PodTraffic =
  /** Recognized by their source address. */
  | { readonly kind: "source"; readonly cidr: string }
  /** Recognized by the interface on which they arrive. */
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interfacePrefix"; readonly prefix: string };

/**
 * The part of a plan that is the same for all Services of one family: the node's state and the administrator's
 * settings.
 */
export interface NodePlan {
  readonly family: Family;
  /** Undefined if pods cannot be told from other senders; then no packet counts as a pod's. */
  readonly podTraffic: PodTraffic | undefined;
  /**
   * True if every connection to a cluster IP is masqueraded, even a pod's. `Route.isMasqueraded` already includes it;
   * backend-ebpf reads it here to leave such connections to the rules.
   */
  readonly isMasqueradeAll: boolean;
  /**
   * Local addresses that serve node ports, ascending and without link-local ones. "all" includes addresses that the
   * node gains later, but loopback addresses only according to {@link NodePlan.isLoopbackNodePorts}.
   */
  readonly nodePortAddresses: "all" | readonly string[];
  /** True if node ports also answer on 127.0.0.0/8; always false for IPv6. */
  readonly isLoopbackNodePorts: boolean;
  /** The Node's own address, with internal addresses preferred to external ones; undefined if unknown. */
  readonly nodeAddress: string | undefined;
  /** CIDRs from which cluster IPs are allocated; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
}
