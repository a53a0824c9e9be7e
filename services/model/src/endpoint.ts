import type { AddressSet } from "./address.ts";
import type { Protocol, ServiceKey } from "./service.ts";

/** A port of an endpoint. Source: EndpointSlice.ports[]. */
export interface EndpointPort {
  /** Name of the service port that it answers for; "" for the unnamed one. */
  readonly name: string;
  /** 1 to 65535. */
  readonly port: number;
  /**
   * Undefined where the source does not say (kpng's state files and streams): it then answers for any protocol. A number
   * is that of localv1.Protocol for one that this version does not know: it then answers for none that it does.
   */
  readonly protocol?: Protocol | number | undefined;
}

/** Conditions of an endpoint with kube-proxy's defaults applied: ready and serving if unset, terminating not. */
export interface EndpointConditions {
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
}

/**
 * One endpoint of a Service as the cluster describes it, the same for every node.
 *
 * Source: EndpointSlice.endpoints[] of discovery.k8s.io/v1.
 */
export interface Endpoint {
  /** Of one family in a slice; a state file may give one endpoint both. The first of a family is the one in use. */
  readonly addresses: AddressSet;
  /** Empty where the Service has no ports either (a headless Service), or the source does not say. */
  readonly ports: readonly EndpointPort[];
  readonly conditions: EndpointConditions;
  /** "" if the endpoint is no pod. */
  readonly podName: string;
  readonly hostname: string;
  /** Node that it runs on; "" if unknown, and then on no node at all. */
  readonly nodeName: string;
  /** Zone that it runs in; "" if unknown. */
  readonly zone: string;
  /** Zones that it is meant for; empty means no hint. */
  readonly hintedZones: readonly string[];
  /** Nodes that it is meant for; empty means no hint. */
  readonly hintedNodes: readonly string[];
}

/**
 * A part of a Service's endpoints that changes as one. Source: discovery.k8s.io/v1 EndpointSlice; a Service of a state
 * file counts as one slice, and so do all endpoints of one source that a global stream names.
 */
export interface EndpointSlice {
  readonly namespace: string;
  readonly name: string;
  /** Label `kubernetes.io/service-name`, in the same namespace. */
  readonly serviceName: string;
  readonly endpoints: readonly Endpoint[];
  /**
   * True if endpoints of pods keep kpng's key, the bare pod name: the slice stands for a Service of a state file, in
   * which a pod appears once. False for a slice of the cluster, where a pod is in one slice per family and port set.
   */
  readonly hasPodKeys: boolean;
  /** Annotation `endpoints.kubernetes.io/last-change-trigger-time`, in milliseconds since 1970; undefined if absent. */
  readonly triggeredAtMs?: number | undefined;
}

/** *Shape:* `namespace/service/slice`: a slice that moves to another Service is another slice. */
export type SliceKey = `${string}/${string}/${string}`;

export function sliceKey(slice: Pick<EndpointSlice, "namespace" | "name" | "serviceName">): SliceKey {
  return `${slice.namespace}/${slice.serviceName}/${slice.name}`;
}

export function serviceKeyOfSlice(slice: Pick<EndpointSlice, "namespace" | "serviceName">): ServiceKey {
  return `${slice.namespace}/${slice.serviceName}`;
}
