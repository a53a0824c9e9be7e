import type { AddressSet } from "./address.ts";
import type { EndpointConditions, EndpointPort } from "./endpoint.ts";
import type { Node } from "./node.ts";
import type { Service, ServiceKey } from "./service.ts";

/** A boolean for each address family. */
export interface FamilyFlags {
  readonly v4: boolean;
  readonly v6: boolean;
}

/** A Service in a node view. A stream carries a Service and its endpoints as separate items. */
export interface ServiceItem {
  readonly service: Service;
  /**
   * For each element of service.ports, in the same order: whether the cluster has a usable endpoint for that port.
   * Traffic for which the node has no endpoint is dropped if another node has one, and rejected if none has.
   *
   * Undefined if the watcher (e.g. KPNG's) does not send it; then only the endpoints in the view count.
   */
  readonly portHasEndpoints?: readonly FamilyFlags[] | undefined;
}

/**
 * How a node uses an endpoint: its membership in the sets of endpoints for the two traffic policies.
 *
 * An endpoint in neither set gets no new traffic. It is still in the view because it answers UDP flows that began
 * earlier.
 */
export interface EndpointUse {
  /**
   * True if the endpoint is in the set for policy Cluster. Under policy Local, this set also gets the traffic that pods
   * and the node itself send to an external address.
   */
  readonly cluster: boolean;
  /** True if the endpoint is in the set for policy Local. */
  readonly local: boolean;
}

/** An endpoint in a node view: the node may send new traffic to it, or earlier UDP flows still end there; see `use`. */
export interface ViewEndpoint {
  /**
   * Unique within the Service, without slashes: the pod's name, `pod.hash`, or up to 16 hex digits if the endpoint is
   * not a pod.
   */
  readonly key: string;
  readonly addresses: AddressSet;
  /** Ports for which the node may use the endpoint: all or some of the endpoint's ports. */
  readonly ports: readonly EndpointPort[];
  readonly hostname: string;
  /** "" if the endpoint is not a pod, or if the watcher (e.g. KPNG's) does not send the name. */
  readonly podName: string;
  /** "" if unknown. */
  readonly nodeName: string;
  /** True if the endpoint runs on the node that the view is for. */
  readonly isOnNode: boolean;
  readonly use: EndpointUse;
  readonly conditions: EndpointConditions;
  /**
   * KPNG's summary of `use`: whether the node uses the endpoint for traffic to cluster IPs (internal), and for traffic
   * to all other addresses (external).
   */
  readonly scopes: { readonly internal: boolean; readonly external: boolean };
}

/** The node that a view is for. */
export interface ViewNode extends Pick<Node, "name" | "zone" | "addresses" | "podCIDRs" | "isEligible"> {
  /** CIDRs from which cluster IPs are allocated; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
}

/** A Service with the endpoints that the node may use for it. */
export interface ServiceView extends ServiceItem {
  /** Ascending by key. A received Service decodes them each time they are read. */
  readonly endpoints: readonly ViewEndpoint[];
}

/**
 * Everything that a watcher sends to one node, and that a backend puts into effect: a pure function of the cluster
 * state, the node's name, and the proxy name and features that the subscriber requests.
 */
export interface NodeView {
  readonly nodeName: string;
  /** Undefined if the cluster does not know the node. */
  readonly node?: ViewNode | undefined;
  /** Ascending by key. */
  readonly services: ReadonlyMap<ServiceKey, ServiceView>;
  /** Number of all endpoints, which a received view knows without decoding them. */
  readonly endpointCount?: number | undefined;
}

/** One change between two views. A put carries the whole new value. */
export type ViewChange =
  | { readonly kind: "put-node"; readonly node: ViewNode }
  | { readonly kind: "delete-node" }
  | { readonly kind: "put-service"; readonly key: ServiceKey; readonly item: ServiceItem }
  | { readonly kind: "delete-service"; readonly key: ServiceKey }
  | { readonly kind: "put-endpoint"; readonly service: ServiceKey; readonly endpoint: ViewEndpoint }
  | { readonly kind: "delete-endpoint"; readonly service: ServiceKey; readonly key: string };
