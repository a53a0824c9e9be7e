import { type EndpointSlice, sliceKey } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { decodeNode } from "../../decode/decode-node.ts";
import type { DecodeOptions } from "../../decode/decode-options.ts";
import { decodeService } from "../../decode/decode-service.ts";
import { decodeSlice } from "../../decode/decode-slice.ts";
import type { Decoded } from "../../decode/decoded.ts";
import type { ClusterObjects, Kind, ObjectChange } from "../../source.ts";
import type { Resource } from "../request/resource.ts";

/** A kind whose objects go to the sink one by one. */
export interface ObjectKind<T> extends Resource {
  readonly kind: Kind;
  decode(object: unknown): Decoded<T>;
  put(value: T): ObjectChange;
  delete(value: T): ObjectChange;
  /** What the sink knows the value by; an object that gets another one is another to the sink. */
  keyOf(value: T): string;
  all(values: readonly T[]): ClusterObjects;
}

export function serviceKind(options: DecodeOptions): ObjectKind<Service> {
  return {
    kind: "services",
    path: "/api/v1/services",
    resource: "services",
    decode: (object) => decodeService(object, options),
    put: (service) => ({ kind: "put-service", service }),
    delete: (service) => ({ kind: "delete-service", key: serviceKey(service) }),
    keyOf: serviceKey,
    all: (services) => ({ services }),
  };
}

export function sliceKind(options: DecodeOptions): ObjectKind<EndpointSlice> {
  return {
    kind: "slices",
    path: "/apis/discovery.k8s.io/v1/endpointslices",
    resource: "endpointslices.discovery.k8s.io",
    decode: (object) => decodeSlice(object, options),
    put: (slice) => ({ kind: "put-slice", slice }),
    delete: (slice) => ({ kind: "delete-slice", key: sliceKey(slice) }),
    keyOf: sliceKey,
    all: (slices) => ({ slices }),
  };
}

export function nodeKind(options: DecodeOptions): ObjectKind<Node> {
  return {
    kind: "nodes",
    path: "/api/v1/nodes",
    resource: "nodes",
    decode: (object) => decodeNode(object, options),
    put: (node) => ({ kind: "put-node", node }),
    delete: (node) => ({ kind: "delete-node", name: node.name }),
    keyOf: (node) => node.name,
    all: (nodes) => ({ nodes }),
  };
}

/** Optional: a cluster before Kubernetes 1.33 does not serve it, and nothing but a warning depends on it. */
export const serviceCIDRs: Resource = {
  kind: "servicecidrs",
  path: "/apis/networking.k8s.io/v1/servicecidrs",
  resource: "servicecidrs.networking.k8s.io",
};
