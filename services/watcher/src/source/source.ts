import type { EndpointSlice, SliceKey } from "@kpng/model/endpoint.ts";
import type { Position, PositionKind } from "@kpng/model/forward.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import type { Task } from "@kpng/process/task.ts";

/**
 * A task that fills a sink until it is aborted. Objects are validated before they reach the sink. The sources are
 * `kube`, `file`, `api` and `replay`; the sink is the store of the watcher.
 */
export type Source = Task;

/**
 * Destination of a source's objects. The store implements it, and is the only place that holds them.
 *
 * `apply` and `replace` make at most one revision, and none if no value changed.
 */
export interface ClusterSink {
  /** Applies changes in their order. */
  apply(changes: readonly ObjectChange[], origin?: Origin): void;
  /**
   * Replaces all objects of the given kinds and marks these kinds as synced.
   */
  replace(objects: ClusterObjects, origin?: Origin): void;
  /** Returns the object of a kind with this key, as it was last put; undefined if there is none. */
  find<K extends Kind>(kind: K, key: string): ObjectOf[K] | undefined;
  /** Where the source reports how far the state is known to be current. Default nowhere. */
  readonly currency?: CurrencySink | undefined;
}

/** Versions of kinds; see `Position`. */
export type Versions = Partial<Readonly<Record<PositionKind, bigint>>>;

/**
 * Takes the reports of a source about how current its objects are. The store's `Currency` implements it. Sources
 * without a server (files, recordings) report nothing.
 */
export interface CurrencySink {
  /** The state is current up to these versions, by events, lists or bookmarks. Called after the state is applied. */
  known(versions: Versions): void;
  /** It is unknown whether the state is current: the server of the source does not answer, or is listed again. */
  stale(reason: string): void;
  /** The state is that of the server again. */
  fresh(): void;
}

/** Kinds of objects that a source delivers. All three must be listed before anything is served. */
export type Kind = keyof ObjectOf;

/** Type of the objects of each kind. Their keys are those of `serviceKey` and `sliceKey`, and the name of a Node. */
export interface ObjectOf {
  readonly services: Service;
  readonly slices: EndpointSlice;
  readonly nodes: Node;
}

/** Put or delete of one object. A put carries the whole new value. */
export type ObjectChange =
  | { readonly kind: "put-service"; readonly service: Service }
  | { readonly kind: "delete-service"; readonly key: ServiceKey }
  | { readonly kind: "put-slice"; readonly slice: EndpointSlice }
  | { readonly kind: "delete-slice"; readonly key: SliceKey }
  | { readonly kind: "put-node"; readonly node: Node }
  | { readonly kind: "delete-node"; readonly name: string }
  | { readonly kind: "set-service-cidrs"; readonly serviceCIDRs: readonly string[] };

/** Complete lists of one or more kinds. An absent kind is not changed. */
export interface ClusterObjects {
  readonly services?: readonly Service[] | undefined;
  readonly slices?: readonly EndpointSlice[] | undefined;
  readonly nodes?: readonly Node[] | undefined;
  /** CIDRs from which cluster IPs are allocated. */
  readonly serviceCIDRs?: readonly string[] | undefined;
}

/** Where and when changes entered the watcher, for traces, metrics and `kpng get changes`. */
export interface Origin {
  /** Kind of the source: "kube", "file", "api" or "replay". */
  readonly source: string;
  /** When the first of the changes reached this process, in milliseconds since 1970, with fractions. */
  readonly receivedAtMs: number;
  /** Resource versions of the events or lists, if the source is an API server. */
  readonly versions?: Versions | undefined;
  /** Identity of the API server's cluster: the UID of its namespace kube-system; undefined if it is unknown. */
  readonly clusterId?: string | undefined;
  /** Position of the state after the changes, if the upstream watcher knows it. */
  readonly position?: Position | undefined;
  /** Traces of the changes in the upstream watcher, if that is the source. */
  readonly upstream?: UpstreamTraces | undefined;
}

/** Decoded from the fields Traceparents, TracedNodes and StoredAtMicros of a sync marker (message EmptyOp). */
interface UpstreamTraces {
  /** Newest first. */
  readonly traceparents: readonly string[];
  readonly tracedNodes: number;
  /** By the upstream watcher's clock, in milliseconds since 1970; 0 if unknown. */
  readonly storedAtMs: number;
}

/**
 * Returns a sink that passes on only Services with one of the proxy names (`--service-proxy-name`). Without names, it
 * is `sink` itself.
 *
 * A Service that gets another proxy name is deleted. EndpointSlices pass: no view contains those without a Service.
 */
export function filterProxyNames(sink: ClusterSink, proxyNames: readonly string[]): ClusterSink {
  if (proxyNames.length === 0) return sink;
  const names = new Set(proxyNames);
  return {
    currency: sink.currency,
    find: (kind, key) => sink.find(kind, key),
    apply: (changes, origin) => {
      const passed = changes.map((change) =>
        change.kind === "put-service" && !names.has(change.service.proxyName)
          ? ({ kind: "delete-service", key: serviceKey(change.service) } as const)
          : change,
      );
      sink.apply(passed, origin);
    },
    replace: (objects, origin) => {
      const services = objects.services?.filter(({ proxyName }) => names.has(proxyName));
      sink.replace({ ...objects, services }, origin);
    },
  };
}
