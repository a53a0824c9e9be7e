import type { EndpointSlice, SliceKey } from "@kpng/model/endpoint.ts";
import type { Position, PositionKind } from "@kpng/model/forward.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import type { Task } from "@kpng/process/task.ts";

/**
 * Fills a sink (the store of a watcher) until the source is aborted. Objects are validated before they reach the sink.
 *
 * ```text
 * API server ── list, watch ──► Reflector ─► ObjectTracker ─┐   one of each for Services, EndpointSlices and Nodes
 * files ─────── polling ──────► FileFollower ───────────────┼─► ClusterSink (Store)
 * watcher ───── stream ───────► Relay ─────► GlobalItems ───┤
 * recording ── lines ──────────────────────► GlobalItems ───┘
 * ```
 *
 * The danger is an incomplete or outdated state, because a node treats a missing Service as a deleted one. Therefore:
 *
 * 1. *Complete lists.* A source calls `replace` with all objects of a kind, or not at all: an API server's list with a
 *    missing page, a batch without its sync marker and a file with an error change nothing. The store serves nobody
 *    until it has all three kinds. An empty list is a state like any other.
 * 2. *Confirmed mass deletions.* If a list from the API server lacks 90 % of the objects of a kind, and at least 10
 *    objects, the server may have an empty etcd. The list's additions are applied; its deletions wait for a second list
 *    31 s later, which is applied as it is.
 * 3. *Known age.* Each change carries the versions up to which its kind is known, and a probe asks the server every 5 s
 *    whether the state is current (`CurrencySink`). Nodes and relays compare these versions (`ForwardGate`), and leave
 *    a watcher that is stale.
 * 4. *Clients never drive the source.* No client request starts a list, a watch or a probe.
 *
 * **Example.** 5 000 Services are known at version 9000 when etcd is replaced by an empty one:
 *
 * ```text
 *  0 s  the watch breaks. A list of one object shows version 12, older than 9000: the kind is listed, and the next
 *       probe makes the source stale
 *  1 s  the list has 1 Service, `default/kubernetes`: 4 999 deletions wait, versions are withheld, /healthz fails
 *  9 s  a Deployment's Service is created at version 40: the watch adds it
 * 32 s  second list: 2 Services at version 55. It applies: 2 Services, current again
 * ```
 *
 * Had the server come back with its data, the second list would have contained 5 000 Services, and no node would have
 * noticed. In the meantime, the versions are withheld, because no version of the server ever had 4 999 old Services and
 * 1 new one.
 *
 * **A relay** does not apply these rules again. It takes over the state, positions and staleness of its upstream, and
 * sends what its upstream would send. It refuses only a state that is older than its own.
 *
 * **Rejected.** client-node's informer stops after any error except 410, and it lists without pages (which blocks one
 * thread for 850 ms with 10 000 slices). Streamed lists (WatchList) need etcd 3.4.31 or 3.5.13. A cache of objects in
 * the source would be a second copy, so `source/kube` keeps only keys, and asks the sink for the previous value.
 * docs/design/views.md has the measurements.
 */
export type Source = Task;

/**
 * Destination of a source's objects. Each call of `apply` or `replace` creates at most one revision, and none if no
 * value changed, unless it completes the first state.
 */
export interface ClusterSink {
  /** Applies changes in their order. */
  apply(changes: readonly ObjectChange[], origin?: Origin): void;
  /** Replaces all objects of the given kinds and marks these kinds as listed. */
  replace(objects: ClusterObjects, origin?: Origin): void;
  /** True if `replace` with these objects would change no value. Takes as long as `replace`. */
  hasState(objects: ClusterObjects): boolean;
  /** Returns the object of a kind with this key, as it was last put; undefined if there is none. */
  find<K extends Kind>(kind: K, key: string): ObjectOf[K] | undefined;
  readonly currency: CurrencySink;
}

/** Resource versions by kind; only the kinds that a report concerns. */
export type Versions = Partial<Readonly<Record<PositionKind, bigint>>>;

/**
 * Receives a source's reports about how current its objects are. Files and recordings have no server, and their sources
 * report nothing.
 */
export interface CurrencySink {
  /**
   * Reports that the state is current up to these versions, which come from events, lists or bookmarks. To be called
   * after the state has been applied.
   */
  confirm(versions: Versions): void;
  /**
   * Reports that the state may be out of date, because the source's server does not answer, refuses requests, or is
   * being listed again. Each further reason replaces the previous one.
   */
  markStale(reason: string): void;
  /** Reports that the state equals the server's again. */
  markFresh(): void;
}

/** Kinds of objects that a source delivers. */
export type Kind = keyof ObjectOf;

/** Types of the objects by kind. Keys are `serviceKey`, `sliceKey`, and the name of a Node. */
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
  /** CIDRs from which cluster IPs are allocated. The store becomes synced without waiting for them. */
  readonly serviceCIDRs?: readonly string[] | undefined;
}

/** Where and when changes entered the watcher, for traces, metrics and `kpng get changes`. */
export interface Origin {
  /** Kind of the source: "kube", "file", "api", "replay" or "simulate". */
  readonly source: string;
  /** Time at which the first of the changes reached this process, in fractional milliseconds since 1970. */
  readonly receivedAtMs: number;
  /** Resource versions of an API server's events or lists; empty while deletions wait for confirmation. */
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
  /** Time by the upstream watcher's clock, in milliseconds since 1970; 0 if unknown. */
  readonly storedAtMs: number;
}

/**
 * Returns a sink that passes on only Services with one of the proxy names (`--service-proxy-name`), or `sink` itself if
 * there are no names. A Service is deleted when its proxy name changes to a name that is not passed on. Slices have no
 * proxy name and all pass; views contain only the slices of Services in the store.
 */
export function filterProxyNames(sink: ClusterSink, proxyNames: readonly string[]): ClusterSink {
  if (proxyNames.length === 0) return sink;
  const names = new Set(proxyNames);
  const filter = (objects: ClusterObjects): ClusterObjects => ({
    ...objects,
    services: objects.services?.filter(({ proxyName }) => names.has(proxyName)),
  });
  return {
    currency: sink.currency,
    hasState: (objects) => sink.hasState(filter(objects)),
    find: (kind, key) => sink.find(kind, key),
    apply: (changes, origin) => {
      const passed = changes.map((change) =>
        change.kind === "put-service" && !names.has(change.service.proxyName)
          ? ({ kind: "delete-service", key: serviceKey(change.service) } as const)
          : change,
      );
      sink.apply(passed, origin);
    },
    replace: (objects, origin) => sink.replace(filter(objects), origin),
  };
}
