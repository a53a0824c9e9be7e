import { type EndpointSlice, sliceKey } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { decodeNode } from "../decode/decode-node.ts";
import { decodeService, headlessLabel, proxyNameLabel } from "../decode/decode-service.ts";
import { decodeSlice } from "../decode/decode-slice.ts";
import type { Decoded, DecodeOptions } from "../decode/decoded.ts";
import { reuseSlice, reuseValue } from "../reuse-objects.ts";
import type { ClusterObjects, Kind, ObjectChange } from "../source.ts";
import type { Resource } from "./connection.ts";

/**
 * How the objects of one kind are listed, decoded and compared, and how they become changes for the sink. There is one
 * for Services, one for EndpointSlices and one for Nodes.
 */
export interface ObjectKind<T> extends Resource {
  readonly kind: Kind;
  decode(object: unknown): Decoded<T>;
  /** Returns `old` if it equals `value`, otherwise `value` with the equal parts of `old`. */
  reuse(old: T | undefined, value: T): T;
  put(value: T): ObjectChange;
  delete(value: T): ObjectChange;
  /** Key of the value in the sink. An object whose key changes is deleted and put again. */
  keyOf(value: T): string;
  toClusterObjects(values: readonly T[]): ClusterObjects;
}

/** Kind of Services: those with one of `proxyNames`, or all if there are none. */
export function serviceKind(options: DecodeOptions, proxyNames: readonly string[] = []): ObjectKind<Service> {
  return {
    kind: "services",
    path: "/api/v1/services",
    resource: "services",
    labelSelector: serviceSelector(proxyNames),
    decode: (object) => decodeService(object, options),
    reuse: reuseValue,
    put: (service) => ({ kind: "put-service", service }),
    delete: (service) => ({ kind: "delete-service", key: serviceKey(service) }),
    keyOf: serviceKey,
    toClusterObjects: (services) => ({ services }),
  };
}

/** Kind of EndpointSlices: those of Services with one of `proxyNames`, or all if there are none. */
export function sliceKind(proxyNames: readonly string[] = []): ObjectKind<EndpointSlice> {
  return {
    labelSelector: sliceSelector(proxyNames),
    kind: "slices",
    path: "/apis/discovery.k8s.io/v1/endpointslices",
    resource: "endpointslices.discovery.k8s.io",
    decode: decodeSlice,
    reuse: reuseSlice,
    put: (slice) => ({ kind: "put-slice", slice }),
    delete: (slice) => ({ kind: "delete-slice", key: sliceKey(slice) }),
    keyOf: sliceKey,
    toClusterObjects: (slices) => ({ slices }),
  };
}

/** Kind of Nodes. */
export function nodeKind(options: DecodeOptions): ObjectKind<Node> {
  return {
    kind: "nodes",
    path: "/api/v1/nodes",
    resource: "nodes",
    decode: (object) => decodeNode(object, options),
    reuse: reuseValue,
    put: (node) => ({ kind: "put-node", node }),
    delete: (node) => ({ kind: "delete-node", name: node.name }),
    keyOf: (node) => node.name,
    toClusterObjects: (nodes) => ({ nodes }),
  };
}

/**
 * ServiceCIDRs, which `kubeSource` reads without an `ObjectCache`. They exist from Kubernetes 1.33; without them, rules
 * cannot drop packets to unused cluster IPs.
 */
export const serviceCIDRResource: Resource = {
  kind: "servicecidrs",
  path: "/apis/networking.k8s.io/v1/servicecidrs",
  resource: "servicecidrs.networking.k8s.io",
};

/**
 * Returns the label selector of the Services with these proxy names, or undefined if no selector can express them. `""`
 * stands for the Services without the label, as for kube-proxy.
 */
export function serviceSelector(proxyNames: readonly string[]): string | undefined {
  if (proxyNames.length === 0) return undefined;
  if (proxyNames.every((name) => name === "")) return `!${proxyNameLabel}`;
  // The requirements of a selector are a conjunction: "no label, or label a" cannot be expressed.
  return proxyNames.includes("") ? undefined : `${proxyNameLabel} in (${proxyNames.join(",")})`;
}

/**
 * Returns the label selector of the EndpointSlices of these Services, or undefined if no selector can express them. It
 * only excludes headless slices, which only external programs (Services with a proxy name) need. A slice made by hand
 * may lack the proxy name of its Service, so no selector asks for it.
 */
export function sliceSelector(proxyNames: readonly string[]): string | undefined {
  return proxyNames.length > 0 && proxyNames.every((name) => name === "") ? `!${headlessLabel}` : undefined;
}
