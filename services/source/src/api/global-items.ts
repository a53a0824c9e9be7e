import { compareText } from "@kpng/model/collections.ts";
import { type Endpoint, type EndpointSlice, sliceKey } from "@kpng/model/endpoint.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import {
  decodeClusterInfo,
  decodeEndpointInfo,
  decodeNodeInfo,
  decodeServiceInfo,
} from "@kpng/model/wire/global-message.ts";
import { WireError } from "@kpng/model/wire/protobuf.ts";
import type { ClusterObjects, ClusterSink, ObjectChange, Origin } from "../source.ts";

type SliceHead = Omit<EndpointSlice, "endpoints">;

interface SlicedEndpoint {
  readonly slice: SliceHead;
  readonly endpoint: Endpoint;
}

/**
 * Collects the operations of a global stream into batches, and delivers each batch to a sink. An operation concerns one
 * endpoint, but the sink takes whole slices, so this class keeps the endpoints of all slices. They are the same objects
 * as the sink's.
 *
 * *Bound:* the slices of one cluster state, and one batch.
 */
export class GlobalItems {
  /** Endpoints by path, grouped by the part of the path that identifies their slice. */
  readonly #slices = new Map<string, Map<string, SlicedEndpoint>>();
  /** Slices that the batch has touched, as they were before the batch. */
  readonly #touchedSlices = new Map<string, SliceHead | undefined>();
  /** Other changes in the batch, in their original order. */
  #changes: ObjectChange[] = [];
  /** True if the batch is the complete state: the first batch, and each batch that begins with Reset. */
  #isWholeState = true;

  /** Applies one operation; returns true for a sync marker. Errors: WireError; the stream must then be closed. */
  apply({ Op: op }: OpItem): boolean {
    switch (op.case) {
      case "Reset":
        this.#slices.clear();
        this.#endBatch();
        this.#isWholeState = true;
        return false;
      case "Keep":
        throw new WireError("the global stream began with Keep, which was not requested");
      case "Batch":
        throw new WireError("the global stream contains packed operations, which were not requested");
      case "Sync":
        return true;
      case "Set":
        at(op.value.Ref, (ref) => this.#put(ref, op.value.Bytes));
        return false;
      case "Delete":
        at(op.value, (ref) => this.#delete(ref.Set, ref.Path));
        return false;
      case undefined:
        return false;
      default:
        return assertNever(op);
    }
  }

  /** *Shape of paths:* `namespace|service||`, `|node||`, `namespace|service|slice|hash`. */
  #delete(set: SetName, path: string): void {
    const [namespace, name] = path.split("|");
    if (set === SetName.GlobalServiceInfos) this.#changes.push({ kind: "delete-service", key: `${namespace}/${name}` });
    else if (set === SetName.GlobalNodeInfos) this.#changes.push({ kind: "delete-node", name: name ?? "" });
    else if (set === SetName.GlobalClusterInfos) this.#changes.push({ kind: "set-service-cidrs", serviceCIDRs: [] });
    else if (set === SetName.GlobalEndpointInfos) {
      const key = sliceOf(path);
      const slice = this.#touch(key);
      slice?.delete(path);
      if (slice?.size === 0) this.#slices.delete(key);
    }
  }

  /** True if the batch is the whole state, and the sink already has it. */
  isUnchanged(sink: ClusterSink): boolean {
    return this.#isWholeState && sink.hasState(objectsOf(this.#allChanges()));
  }

  /** Ends the batch and delivers it: the whole state if the batch began with Reset, otherwise its changes. */
  deliverTo(sink: ClusterSink, origin?: Origin): void {
    const changes = this.#allChanges();
    if (this.#isWholeState) {
      sink.replace(objectsOf(changes), origin);
      for (const slice of this.#slices.values()) shareEndpoints(slice, sink);
    } else sink.apply(changes, origin);
    this.#endBatch();
  }

  #allChanges(): readonly ObjectChange[] {
    return [...this.#changes, ...this.#sliceChanges()];
  }

  #put(ref: Ref, bytes: Uint8Array): void {
    switch (ref.Set) {
      case SetName.GlobalServiceInfos:
        this.#changes.push({ kind: "put-service", service: decodeServiceInfo(bytes) });
        break;
      case SetName.GlobalNodeInfos:
        this.#changes.push({ kind: "put-node", node: decodeNodeInfo(bytes) });
        break;
      case SetName.GlobalEndpointInfos:
        // KPNG sends each endpoint twice. The path of the copy has no Service name.
        if (ref.Path.split("|")[1] !== "") {
          const key = sliceOf(ref.Path);
          const slice = this.#touch(key) ?? new Map<string, SlicedEndpoint>();
          this.#slices.set(key, slice.set(ref.Path, decodeEndpointInfo(bytes)));
        }
        break;
      case SetName.GlobalClusterInfos:
        this.#changes.push({ kind: "set-service-cidrs", serviceCIDRs: decodeClusterInfo(bytes) });
        break;
      default:
        // Only newer watchers send this Set.
        break;
    }
  }

  /** Returns the endpoints of a slice, and marks it as touched. */
  #touch(key: string): Map<string, SlicedEndpoint> | undefined {
    const slice = this.#slices.get(key);
    if (!this.#touchedSlices.has(key)) this.#touchedSlices.set(key, slice?.values().next().value?.slice);
    return slice;
  }

  *#sliceChanges(): Iterable<ObjectChange> {
    for (const [key, before] of this.#touchedSlices) {
      const slice = joinSlice(this.#slices.get(key));
      if (slice !== undefined) yield { kind: "put-slice", slice };
      else if (before !== undefined) yield { kind: "delete-slice", key: sliceKey(before) };
    }
  }

  #endBatch(): void {
    this.#touchedSlices.clear();
    this.#changes = [];
    this.#isWholeState = false;
  }
}

/** Returns the part of an endpoint's path that identifies its slice. */
function sliceOf(path: string): string {
  return path.slice(0, path.lastIndexOf("|"));
}

/**
 * Replaces endpoints by the sink's, which kept its own if they are equal. Otherwise, after each reconnection, all
 * endpoints would be in memory twice: 92 instead of 59 MB for 100 000.
 */
function shareEndpoints(slice: Map<string, SlicedEndpoint>, sink: ClusterSink): void {
  const [first] = slice.values();
  const kept = first && sink.find("slices", sliceKey(first.slice));
  // The order in which `joinSlice` passed the endpoints to the sink.
  const paths = [...slice.keys()].sort(compareText);
  if (kept?.endpoints.length !== paths.length) return;
  for (const [at, path] of paths.entries()) {
    const [item, endpoint] = [slice.get(path), kept.endpoints[at]];
    if (item !== undefined && endpoint !== undefined) slice.set(path, { ...item, endpoint });
  }
}

/**
 * Creates a slice from its endpoints, in the order of their paths. The original KPNG may send a pod twice in a slice
 * that has the same name as its Service; the pod's name is then not a key.
 */
function joinSlice(slice: ReadonlyMap<string, SlicedEndpoint> | undefined): EndpointSlice | undefined {
  const [first, ...others] = [...(slice ?? [])].sort(([a], [b]) => compareText(a, b)).map(([, item]) => item);
  if (first === undefined) return undefined;
  const endpoints = [first, ...others].map(({ endpoint }) => endpoint);
  const pods = endpoints.map(({ podName }) => podName).filter((name) => name !== "");
  return { ...first.slice, endpoints, hasPodKeys: first.slice.hasPodKeys && new Set(pods).size === pods.length };
}

/** Returns the state that results from applying these changes to an empty state. */
function objectsOf(changes: readonly ObjectChange[]): ClusterObjects {
  const services = new Map<string, Service>();
  const slices = new Map<string, EndpointSlice>();
  const nodes = new Map<string, Node>();
  let serviceCIDRs: readonly string[] = [];
  for (const change of changes) {
    if (change.kind === "put-service") services.set(serviceKey(change.service), change.service);
    else if (change.kind === "put-slice") slices.set(sliceKey(change.slice), change.slice);
    else if (change.kind === "put-node") nodes.set(change.node.name, change.node);
    else if (change.kind === "delete-service") services.delete(change.key);
    else if (change.kind === "delete-slice") slices.delete(change.key);
    else if (change.kind === "delete-node") nodes.delete(change.name);
    else serviceCIDRs = change.serviceCIDRs;
  }
  return { services: [...services.values()], slices: [...slices.values()], nodes: [...nodes.values()], serviceCIDRs };
}

function at(ref: Ref | undefined, apply: (ref: Ref) => void): void {
  if (ref === undefined) throw new WireError("operation without a path");
  try {
    apply(ref);
  } catch (cause) {
    throw new WireError(`invalid item at "${ref.Path}"`, { cause });
  }
}

/** Memory of an operation and its path, in addition to their content, in bytes. */
const opBytes = 512;

/** Additional memory of a Service, which has many fields, in bytes. */
const serviceFieldsBytes = 208;

/**
 * Maximum size of a small item, in bytes. Encoded endpoints take 100 to 300 bytes; larger items may have many ports and
 * labels.
 */
const smallItemBytes = 1_024;

/**
 * Memory per byte beyond `smallItemBytes`, in bytes: a port takes at least 2 bytes on the wire, and about 110 bytes in
 * memory.
 */
const largeItemFactor = 8;

/**
 * Estimates the memory of an operation until its batch is applied, in bytes. For 250 000 endpoints, the sum is 190 MB,
 * and twice as much from the original KPNG, which sends each endpoint twice. Pure.
 */
export function estimateOpBytes({ Op: op }: OpItem): number {
  const pathBytes = (path = ""): number => opBytes + path.length;
  if (op.case === "Delete") return pathBytes(op.value.Path);
  if (op.case !== "Set") return opBytes;
  const { Ref: ref, Bytes: bytes } = op.value;
  const more = ref?.Set === SetName.GlobalServiceInfos ? serviceFieldsBytes : 0;
  return pathBytes(ref?.Path) + more + bytes.length + largeItemFactor * Math.max(0, bytes.length - smallItemBytes);
}
