import { type SliceKey, sliceKey } from "@kpng/model/endpoint.ts";
import { type ServiceKey, serviceKey } from "@kpng/model/service.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { decodeNode } from "../decode/decode-node.ts";
import { decodeService } from "../decode/decode-service.ts";
import { decodeSlice } from "../decode/decode-slice.ts";
import { type Decoded, type DecodeOptions, type FieldProblem, showPath } from "../decode/decoded.ts";
import { reuseSlice, reuseValue } from "../reuse-objects.ts";
import type { ClusterObjects, ClusterSink, Kind, ObjectChange, ObjectOf, Origin, Versions } from "../source.ts";
import type { Resource } from "./connection.ts";
import type { KindReport, MassDeletion } from "./kind-report.ts";
import { objectKey, type WatchEvent } from "./requests.ts";

/** Describes how the objects of one kind are listed, decoded and compared, and how they become changes for the sink. */
export interface ObjectKind<K extends Kind> extends Resource {
  readonly kind: K;
  decode(object: unknown): Decoded<ObjectOf[K]>;
  /** Returns `old` if it equals `value`; otherwise returns `value`, but with the equal parts taken from `old`. */
  reuse(old: ObjectOf[K] | undefined, value: ObjectOf[K]): ObjectOf[K];
  put(value: ObjectOf[K]): ObjectChange;
  delete(key: string): ObjectChange;
  /** Key of the value in the sink. An object whose key changes is deleted and put again. */
  keyOf(value: ObjectOf[K]): string;
  toClusterObjects(values: readonly ObjectOf[K][]): ClusterObjects;
}

export function serviceKind(options: DecodeOptions): ObjectKind<"services"> {
  return {
    kind: "services",
    path: "/api/v1/services",
    resource: "services",
    decode: (object) => decodeService(object, options),
    reuse: reuseValue,
    put: (service) => ({ kind: "put-service", service }),
    delete: (key) => ({ kind: "delete-service", key: key as ServiceKey }),
    keyOf: serviceKey,
    toClusterObjects: (services) => ({ services }),
  };
}

export const sliceKind: ObjectKind<"slices"> = {
  kind: "slices",
  path: "/apis/discovery.k8s.io/v1/endpointslices",
  resource: "endpointslices.discovery.k8s.io",
  decode: decodeSlice,
  reuse: reuseSlice,
  put: (slice) => ({ kind: "put-slice", slice }),
  delete: (key) => ({ kind: "delete-slice", key: key as SliceKey }),
  keyOf: sliceKey,
  toClusterObjects: (slices) => ({ slices }),
};

export function nodeKind(options: DecodeOptions): ObjectKind<"nodes"> {
  return {
    kind: "nodes",
    path: "/api/v1/nodes",
    resource: "nodes",
    decode: (object) => decodeNode(object, options),
    reuse: reuseValue,
    put: (node) => ({ kind: "put-node", node }),
    delete: (name) => ({ kind: "delete-node", name }),
    keyOf: (node) => node.name,
    toClusterObjects: (nodes) => ({ nodes }),
  };
}

/**
 * Turns the lists and watch events of one kind into changes for the sink. An object that no proxy needs any more is
 * deleted, and so is the previous value of a slice that moves to another Service. Invalid parts of an object are
 * skipped, logged once and counted; an object that is invalid as a whole keeps its last valid value. `Source` explains
 * why mass deletions must wait for confirmation.
 *
 * *Bound:* two keys per object, and one message per invalid object. Only the sink holds objects.
 */
export class ObjectTracker<K extends Kind> {
  readonly #kind: ObjectKind<K>;
  readonly #sink: ClusterSink;
  readonly #report: KindReport;
  readonly #clusterId: () => string | undefined;
  /** Keys in the sink, by the keys of the API objects. */
  #keys = new Map<string, string>();
  /**
   * Problems of invalid objects, by the keys of the API objects. Each is logged once, and again only when it changes.
   */
  readonly #problems = new Map<string, string>();
  /** True while deletions wait for confirmation. The objects then do not match any version of the server's state. */
  #holdsDeletions = false;

  constructor(kind: ObjectKind<K>, sink: ClusterSink, report: KindReport, clusterId: () => string | undefined) {
    this.#kind = kind;
    this.#sink = sink;
    this.#report = report;
    this.#clusterId = clusterId;
  }

  /** Starts a list. A list that is never completed has no effect. */
  beginList(): IncomingList {
    const listed = new Map<string, ObjectOf[K]>();
    const receivedKeys = new Set<string>();
    let receivedAtMs: number | undefined;
    return {
      add: (object) => {
        receivedAtMs ??= wallClockMs();
        const key = objectKey(object);
        receivedKeys.add(key);
        const value = this.#decode(key, object);
        if (value !== undefined) listed.set(key, value);
      },
      complete: (isConfirming, resourceVersion) => {
        for (const key of [...this.#problems.keys()]) if (!receivedKeys.has(key)) this.#newProblem(key, "");
        const missingKeys = [...this.#keys.keys()].filter((key) => !listed.has(key));
        const counts = { currentCount: this.#keys.size, deletedCount: missingKeys.length };
        // Deletions that are held stay held until the confirming list, whatever other lists come before it.
        const isHolding = this.#holdsDeletions && missingKeys.length > 0;
        this.#holdsDeletions = !isConfirming && (isHolding || isMassDeletion(counts));
        for (const key of this.#holdsDeletions ? missingKeys : []) {
          const value = this.#find(key);
          if (value !== undefined) listed.set(key, value);
        }
        this.#keys = new Map([...listed].map(([key, value]) => [key, this.#kind.keyOf(value)]));
        const objects = this.#kind.toClusterObjects([...listed.values()]);
        this.#sink.replace(objects, this.#origin(receivedAtMs ?? wallClockMs(), resourceVersion));
        return this.#holdsDeletions ? counts : undefined;
      },
    };
  }

  /**
   * Applies the events of a watch in their order. If `events` is empty, reports that nothing changed up to
   * `resourceVersion`. `receivedAtMs` is in fractional milliseconds since 1970.
   */
  apply(events: readonly WatchEvent[], receivedAtMs: number, resourceVersion: string): void {
    const changes = events.flatMap((event) => this.#changesOf(event));
    const origin = this.#origin(receivedAtMs, resourceVersion);
    if (changes.length > 0) this.#sink.apply(changes, origin);
    this.#sink.currency.confirm(origin.versions);
  }

  #origin(receivedAtMs: number, resourceVersion: string): Origin & { readonly versions: Versions } {
    const version = this.#holdsDeletions ? undefined : versionOf(resourceVersion);
    const versions = version === undefined ? {} : { [this.#kind.kind]: version };
    return { source: "kube", receivedAtMs, versions, clusterId: this.#clusterId() };
  }

  #changesOf(event: WatchEvent): readonly ObjectChange[] {
    if (event.kind === "bookmark") return [];
    if (event.kind === "delete") this.#newProblem(event.key, "");
    const oldKey = this.#keys.get(event.key);
    const value = event.kind === "put" ? this.#decode(event.key, event.object) : undefined;
    const key = value && this.#kind.keyOf(value);
    const changes = oldKey === undefined || oldKey === key ? [] : [this.#kind.delete(oldKey)];
    if (value === undefined || key === undefined) {
      this.#keys.delete(event.key);
      return changes;
    }
    this.#keys.set(event.key, key);
    return [...changes, this.#kind.put(value)];
  }

  /**
   * Returns the decoded object: the sink's value if it is equal, its last valid value if it is invalid, undefined if no
   * proxy needs it. Because each object is compared as it arrives, the store need not compare whole lists.
   */
  #decode(key: string, object: unknown): ObjectOf[K] | undefined {
    const decoded = this.#kind.decode(object);
    switch (decoded.kind) {
      case "ok": {
        const text = this.#newProblem(key, decoded.skipped.slice(0, maxProblems).map(describe).join("; "));
        if (decoded.skipped.length > 0) this.#report.partsSkipped(key, text, decoded.skipped.length);
        return this.#kind.reuse(this.#find(key), decoded.value);
      }
      case "skip":
        this.#newProblem(key, "");
        return undefined;
      default:
        this.#report.objectInvalid(key, this.#newProblem(key, describe(decoded)));
        return this.#find(key);
    }
  }

  #find(key: string): ObjectOf[K] | undefined {
    const sinkKey = this.#keys.get(key);
    return sinkKey === undefined ? undefined : this.#sink.find(this.#kind.kind, sinkKey);
  }

  /**
   * Sets the problem of an object; "" for none. Returns the problem unless it equals the previous one. Array indexes
   * are ignored in this comparison, because they may shift.
   */
  #newProblem(key: string, problem: string): string | undefined {
    const normalize = (text: string): string => text.replaceAll(/\[\d+\]/g, "[]");
    const previous = this.#problems.get(key) ?? "";
    if (problem === "") this.#problems.delete(key);
    else this.#problems.set(key, problem);
    if (normalize(problem) === normalize(previous)) return undefined;
    this.#report.invalidObjects(this.#problems);
    return problem;
  }
}

/** Maximum number of an object's invalid parts that its message names; the metric counts all. */
const maxProblems = 20;

/** A list that is being received. Its objects take effect together, once the list is complete. */
interface IncomingList {
  add(object: unknown): void;
  /**
   * Applies the list. Returns its deletions if they must wait for a second list; if `isConfirming`, this is the second
   * list.
   */
  complete(isConfirming: boolean, resourceVersion: string): MassDeletion | undefined;
}

/** True if a list would delete at least nine tenths of the objects; fewer than ten deletions are never held. */
function isMassDeletion({ currentCount, deletedCount }: MassDeletion): boolean {
  return deletedCount >= 10 && deletedCount >= 0.9 * currentCount;
}

function describe({ path, problem }: FieldProblem): string {
  return `${showPath(path)}: ${problem}`;
}

/** Returns a resource version as a number; undefined for any other string, and for one beyond 64 bits. */
function versionOf(resourceVersion: string): bigint | undefined {
  return /^\d{1,19}$/.test(resourceVersion) ? BigInt(resourceVersion) : undefined;
}
