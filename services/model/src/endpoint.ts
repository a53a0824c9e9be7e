import type { AddressSet } from "./address.ts";
import type { Protocol, ServiceKey } from "./service.ts";

/** A port of an endpoint. Source: EndpointSlice.ports[]. */
export interface EndpointPort {
  /** Name of the corresponding service port; "" if that port is unnamed. */
  readonly name: string;
  /** 1 to 65535. */
  readonly port: number;
  /**
   * Undefined if the source does not specify it (as in KPNG's state files and streams); the port then matches any
   * protocol. A number is a value of localv1.Protocol that this version does not know; the port then matches no known
   * protocol.
   */
  readonly protocol?: Protocol | number | undefined;
}

/** Conditions of an endpoint. Unset conditions have kube-proxy's defaults: ready, serving, and not terminating. */
export interface EndpointConditions {
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
}

/** One endpoint of a Service, as the cluster describes it to every node. Source: EndpointSlice.endpoints[]. */
export interface Endpoint {
  /**
   * Addresses of one family if the endpoint comes from an EndpointSlice, possibly of both families if it comes from a
   * state file. Only the first address of each family is used.
   */
  readonly addresses: AddressSet;
  /**
   * Empty if the Service itself has no ports (a headless Service), or if the source does not list any. In the latter
   * case, the endpoint serves the target port of the unnamed Service port.
   */
  readonly ports: readonly EndpointPort[];
  readonly conditions: EndpointConditions;
  /** "" if the endpoint is not a pod. */
  readonly podName: string;
  readonly hostname: string;
  /** Node that the endpoint runs on; "" if unknown, in which case the endpoint is not on-node for any node. */
  readonly nodeName: string;
  /** Zone that the endpoint runs in; "" if unknown. */
  readonly zone: string;
  /** Zones that should use the endpoint; empty if there is no hint. */
  readonly hintedZones: readonly string[];
  /** Nodes that should use the endpoint; empty if there is no hint. */
  readonly hintedNodes: readonly string[];
}

/**
 * A part of a Service's endpoints that changes as a whole.
 *
 * Source: EndpointSlice of discovery.k8s.io/v1. In KPNG's global stream (globalv1) and in state files, endpoints with
 * the same SourceName are one slice. A state file's endpoints may have none; see `addSlices`.
 */
export interface EndpointSlice {
  readonly namespace: string;
  readonly name: string;
  /** Name of the Service, from the label `kubernetes.io/service-name`. The Service is in the same namespace. */
  readonly serviceName: string;
  readonly endpoints: readonly Endpoint[];
  /**
   * How a view names the pods of this slice (`ViewEndpoint.key`). If true, the key is the bare pod name, as in KPNG;
   * this is the case for a state file's slice with the name of its Service, where each pod occurs once. If false, the
   * key is the pod name with a hash, because a pod in the cluster may be in several slices of a Service, one per family
   * and set of ports.
   */
  readonly hasPodKeys: boolean;
  /** Annotation `endpoints.kubernetes.io/last-change-trigger-time`, in milliseconds since 1970; undefined if absent. */
  readonly triggeredAtMs?: number | undefined;
}

/**
 * Identity of a slice.
 *
 * *Shape:* `namespace/service/slice`. The key contains the Service because the store groups slices by Service and must
 * find a slice by its key alone. A slice that moves to another Service therefore gets another key.
 */
export type SliceKey = `${string}/${string}/${string}`;

/** Returns the key of a slice. */
export function sliceKey(slice: Pick<EndpointSlice, "namespace" | "name" | "serviceName">): SliceKey {
  return `${slice.namespace}/${slice.serviceName}/${slice.name}`;
}

/** Returns the key of the Service that a slice belongs to. */
export function serviceKeyOfSlice(slice: Pick<EndpointSlice, "namespace" | "serviceName">): ServiceKey {
  return `${slice.namespace}/${slice.serviceName}`;
}
