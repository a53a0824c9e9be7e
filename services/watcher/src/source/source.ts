import type { EndpointSlice, SliceKey } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service, ServiceKey } from "@kpng/model/service.ts";
import type { Task } from "@kpng/process/task.ts";

/** The kinds of objects that a source delivers. */
export type Kind = "services" | "slices" | "nodes";

/** One object put or gone. A put carries the whole new value. */
export type ObjectChange =
  | { readonly kind: "put-service"; readonly service: Service }
  | { readonly kind: "delete-service"; readonly key: ServiceKey }
  | { readonly kind: "put-slice"; readonly slice: EndpointSlice }
  | { readonly kind: "delete-slice"; readonly key: SliceKey }
  | { readonly kind: "put-node"; readonly node: Node }
  | { readonly kind: "delete-node"; readonly name: string };

/** All objects of the kinds that are present; an absent kind is left as it is. */
export interface ClusterObjects {
  readonly services?: readonly Service[] | undefined;
  readonly slices?: readonly EndpointSlice[] | undefined;
  readonly nodes?: readonly Node[] | undefined;
  /** CIDRs that cluster IPs are taken from; absent leaves them as they are. */
  readonly serviceCIDRs?: readonly string[] | undefined;
}

/** Where changes come from, for whoever follows one on its way. */
export interface Origin {
  /** Kind of the source: "kube", "file" or "api". */
  readonly source: string;
  /** When the first of them reached this process, in milliseconds since 1970, with fractions. */
  readonly receivedAtMs: number;
  /** Of another watcher: what its marker said of their traces. */
  readonly upstream?: UpstreamTraces | undefined;
}

/** See Traceparents, TracedNodes and StoredAtMicros of EmptyOp. */
export interface UpstreamTraces {
  /** Newest first. */
  readonly traceparents: readonly string[];
  readonly tracedNodes: number;
  /** By the other watcher's clock, in milliseconds since 1970; 0 if it does not say. */
  readonly storedAtMs: number;
}

/**
 * Where a source puts what it reads. The store is the only implementation.
 *
 * Each call makes at most one revision, and none if nothing differs by value.
 */
export interface ClusterSink {
  /** Applies changes in their order. */
  apply(changes: readonly ObjectChange[], origin?: Origin): void;
  /** Makes the given objects the only ones of their kinds, and these kinds synced. */
  replace(objects: ClusterObjects, origin?: Origin): void;
}

/** A task that fills a sink until it is aborted. What it reads is validated before it reaches the sink. */
export type Source = Task;
