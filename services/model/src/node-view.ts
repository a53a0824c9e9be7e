import type { AddressSet } from "./address.ts";
import type { EndpointConditions, EndpointPort } from "./endpoint.ts";
import type { Node } from "./node.ts";
import type { Service, ServiceKey } from "./service.ts";

/** For which families something holds. */
export interface FamilyFlags {
  readonly v4: boolean;
  readonly v6: boolean;
}

/** A Service as one node is told of it. */
export interface ServiceItem {
  readonly service: Service;
  /**
   * For each of service.ports, in order: whether any usable endpoint exists anywhere in the cluster. Where the node has
   * none in the set that a policy wants, traffic is dropped if one exists elsewhere, and refused if none does.
   *
   * Undefined if the watcher does not say (a Go one).
   */
  readonly portHasEndpoints?: readonly FamilyFlags[] | undefined;
}

/**
 * How a node uses an endpoint.
 *
 * An endpoint in neither set gets no new traffic: it is told because it still answers UDP flows that began earlier.
 */
export interface EndpointUse {
  /**
   * In the set for policy Cluster, which also takes what pods and the node itself send to an external address under
   * policy Local.
   */
  readonly cluster: boolean;
  /** In the set for policy Local. */
  readonly local: boolean;
}

/** An endpoint that this node may send some of a Service's traffic to. */
export interface ViewEndpoint {
  /** Unique within the Service; no slash. The pod's name, `pod.hash`, or 16 hex digits for what is no pod. */
  readonly key: string;
  readonly addresses: AddressSet;
  /** The ports for which the node may use it: not always all that the endpoint has. */
  readonly ports: readonly EndpointPort[];
  readonly hostname: string;
  /** "" if the endpoint is no pod, or the watcher does not say (a Go one). */
  readonly podName: string;
  /** "" if unknown. */
  readonly nodeName: string;
  /** True if it runs on the node that the view is for. */
  readonly isOnNode: boolean;
  readonly use: EndpointUse;
  readonly conditions: EndpointConditions;
  /** KPNG's summary: whether traffic to cluster IPs, and to all other addresses, may go there. */
  readonly scopes: { readonly internal: boolean; readonly external: boolean };
}

/** The node that a view is for. */
export interface ViewNode extends Pick<Node, "name" | "zone" | "addresses" | "podCIDRs" | "isEligible"> {
  /** CIDRs that cluster IPs are taken from; empty if unknown. */
  readonly serviceCIDRs: readonly string[];
}

/** A Service with the endpoints that the node may use for it. */
export interface ServiceView extends ServiceItem {
  /** Ascending by key. */
  readonly endpoints: readonly ViewEndpoint[];
}

/** All that one node must know: a pure function of the cluster state and the node's name. */
export interface NodeView {
  readonly nodeName: string;
  /** Undefined if the cluster does not know the node. */
  readonly node?: ViewNode | undefined;
  /** Ascending by key. */
  readonly services: ReadonlyMap<ServiceKey, ServiceView>;
}

/** One step between two views. A put carries the whole new value. */
export type ViewChange =
  | { readonly kind: "put-node"; readonly node: ViewNode }
  | { readonly kind: "delete-node" }
  | { readonly kind: "put-service"; readonly key: ServiceKey; readonly item: ServiceItem }
  | { readonly kind: "delete-service"; readonly key: ServiceKey }
  | { readonly kind: "put-endpoint"; readonly service: ServiceKey; readonly endpoint: ViewEndpoint }
  | { readonly kind: "delete-endpoint"; readonly service: ServiceKey; readonly key: string };
