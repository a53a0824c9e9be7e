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
  /** Estimated memory, in bytes. Default 0. */
  readonly bytes?: number | undefined;
}

/** A Service or a node. */
interface Sized<V> {
  readonly value: V;
  /** Estimated memory, in bytes. */
  readonly bytes: number;
}

/**
 * Items of a global stream since its Reset, by path, and what the current batch changed. The sources `api` and `replay`
 * collect a batch in it and then deliver it to their sink.
 *
 * *Bound:* one whole cluster state. `apiSource` limits `bytes`.
 */
export class GlobalItems {
  readonly #services = new Map<string, Sized<Service>>();
  readonly #nodes = new Map<string, Sized<Node>>();
  /** Endpoints by path, grouped by the part of the path that identifies their slice. */
  readonly #slices = new Map<string, Map<string, SlicedEndpoint>>();
  /** Values before the current batch, of the paths that it touched. */
  readonly #touchedServices = new Map<string, Service | undefined>();
  readonly #touchedNodes = new Map<string, Node | undefined>();
  readonly #touchedSlices = new Map<string, SliceHead | undefined>();
  #serviceCIDRs: readonly string[] = [];
  #hasNewCIDRs = false;
  /** True if the current batch began with Reset: it is the complete state, not a change of the previous one. */
  #isReset = true;
  #bytes = 0;

  /** Estimated memory of all items, in bytes: the sum of what was given for each. */
  get bytes(): number {
    return this.#bytes;
  }

  get serviceCount(): number {
    return this.#services.size;
  }

  get nodeCount(): number {
    return this.#nodes.size;
  }

  clear(): void {
    this.#services.clear();
    this.#nodes.clear();
    this.#slices.clear();
    this.#serviceCIDRs = [];
    this.#bytes = 0;
    this.#endBatch();
    this.#isReset = true;
  }

  setServiceCIDRs(serviceCIDRs: readonly string[]): void {
    this.#serviceCIDRs = serviceCIDRs;
    this.#hasNewCIDRs = true;
  }

  /** `bytes` is the estimated memory. */
  putService(path: string, service: Service, bytes = 0): void {
    const before = this.#services.get(path);
    touch(this.#touchedServices, path, before?.value);
    this.#services.set(path, { value: service, bytes });
    this.#bytes += bytes - (before?.bytes ?? 0);
  }

  /** `bytes` is the estimated memory. */
  putNode(path: string, node: Node, bytes = 0): void {
    const before = this.#nodes.get(path);
    touch(this.#touchedNodes, path, before?.value);
    this.#nodes.set(path, { value: node, bytes });
    this.#bytes += bytes - (before?.bytes ?? 0);
  }

  putEndpoint(path: string, item: SlicedEndpoint): void {
    const key = sliceOf(path);
    const slice = this.#slices.get(key) ?? new Map<string, SlicedEndpoint>();
    touch(this.#touchedSlices, key, headOf(slice));
    this.#bytes += (item.bytes ?? 0) - (slice.get(path)?.bytes ?? 0);
    this.#slices.set(key, slice.set(path, item));
  }

  delete(set: SetName, path: string): void {
    if (set === SetName.GlobalServiceInfos) {
      const before = this.#services.get(path);
      touch(this.#touchedServices, path, before?.value);
      this.#services.delete(path);
      this.#bytes -= before?.bytes ?? 0;
    } else if (set === SetName.GlobalNodeInfos) {
      const before = this.#nodes.get(path);
      touch(this.#touchedNodes, path, before?.value);
      this.#nodes.delete(path);
      this.#bytes -= before?.bytes ?? 0;
    } else if (set === SetName.GlobalEndpointInfos) {
      const key = sliceOf(path);
      const slice = this.#slices.get(key);
      if (slice === undefined) return;
      touch(this.#touchedSlices, key, headOf(slice));
      this.#bytes -= slice.get(path)?.bytes ?? 0;
      slice.delete(path);
      if (slice.size === 0) this.#slices.delete(key);
    } else if (set === SetName.GlobalClusterInfos) this.setServiceCIDRs([]);
  }

  /** Ends the batch and delivers it: the whole state if it began with Reset, else its changes. */
  deliverTo(sink: ClusterSink, origin?: Origin): void {
    if (this.#isReset) sink.replace(this.toObjects(), origin);
    else sink.apply(this.#changes(), origin);
    this.#endBatch();
  }

  #endBatch(): void {
    for (const touched of [this.#touchedServices, this.#touchedNodes, this.#touchedSlices]) touched.clear();
    this.#isReset = false;
    this.#hasNewCIDRs = false;
  }

  /** Returns all items as cluster objects. */
  toObjects(): ClusterObjects {
    return {
      services: [...this.#services.values()].map(({ value }) => value),
      nodes: [...this.#nodes.values()].map(({ value }) => value),
      slices: [...this.#slices.values()].flatMap((slice) => joinSlice(slice) ?? []),
      serviceCIDRs: this.#serviceCIDRs,
    };
  }

  /** Changes of the current batch. *Cost:* proportional to what it touched. */
  #changes(): readonly ObjectChange[] {
    const changes: ObjectChange[] = [];
    if (this.#hasNewCIDRs) changes.push({ kind: "set-service-cidrs", serviceCIDRs: this.#serviceCIDRs });
    for (const [path, before] of this.#touchedServices) {
      const service = this.#services.get(path)?.value;
      if (service !== undefined) changes.push({ kind: "put-service", service });
      else if (before !== undefined) changes.push({ kind: "delete-service", key: serviceKey(before) });
    }
    for (const [key, before] of this.#touchedSlices) {
      const slice = joinSlice(this.#slices.get(key));
      if (slice !== undefined) changes.push({ kind: "put-slice", slice });
      else if (before !== undefined) changes.push({ kind: "delete-slice", key: sliceKey(before) });
    }
    for (const [path, before] of this.#touchedNodes) {
      const node = this.#nodes.get(path)?.value;
      if (node !== undefined) changes.push({ kind: "put-node", node });
      else if (before !== undefined) changes.push({ kind: "delete-node", name: before.name });
    }
    return changes;
  }
}

function touch<V>(touched: Map<string, V | undefined>, path: string, before: V | undefined): void {
  if (!touched.has(path)) touched.set(path, before);
}

/** Part of an endpoint's path that identifies its slice. *Shape:* the path is `namespace|service|slice|key`. */
function sliceOf(path: string): string {
  return path.slice(0, path.lastIndexOf("|"));
}

function headOf(slice: ReadonlyMap<string, SlicedEndpoint>): SliceHead | undefined {
  for (const { slice: head } of slice.values()) return head;
  return undefined;
}

/** Makes a slice of its endpoints, ordered by path, so that equal items give equal slices in any order of arrival. */
function joinSlice(slice: ReadonlyMap<string, SlicedEndpoint> | undefined): EndpointSlice | undefined {
  const [first, ...others] = [...(slice ?? [])].sort(([a], [b]) => compareText(a, b)).map(([, item]) => item);
  if (first === undefined) return undefined;
  return { ...first.slice, endpoints: [first, ...others].map(({ endpoint }) => endpoint) };
}

/**
 * Applies one operation of a global stream to `items`. Returns true if it was the sync marker that ends a batch.
 *
 * Errors: WireError; `items` are then unchanged.
 */
export function applyGlobalOp(items: GlobalItems, { Op: op }: OpItem): boolean {
  switch (op.case) {
    case "Reset":
      items.clear();
      return false;
    case "Keep":
      throw new WireError("the global stream began with Keep, which we did not request");
    case "Batch":
      throw new WireError("the global stream contains packed operations, which we did not request");
    case "Sync":
      return true;
    case "Set":
      at(op.value.Ref, (ref) => put(ref, op.value.Bytes, items));
      return false;
    case "Delete":
      at(op.value, (ref) => items.delete(ref.Set, ref.Path));
      return false;
    case undefined:
      return false;
    default:
      return assertNever(op);
  }
}

function put(ref: Ref, bytes: Uint8Array, items: GlobalItems): void {
  const memory = (portCount = 0): number => estimateItemBytes(ref.Path.length, bytes.length, portCount);
  switch (ref.Set) {
    case SetName.GlobalServiceInfos: {
      const service = decodeServiceInfo(bytes);
      items.putService(ref.Path, service, memory(service.ports.length));
      break;
    }
    case SetName.GlobalNodeInfos:
      items.putNode(ref.Path, decodeNodeInfo(bytes), memory());
      break;
    case SetName.GlobalEndpointInfos:
      // KPNG sends each endpoint twice. The path of the copy has no Service name.
      if (ref.Path.split("|")[1] !== "") {
        const item = decodeEndpointInfo(bytes);
        items.putEndpoint(ref.Path, { ...item, bytes: memory(item.endpoint.ports.length) });
      }
      break;
    case SetName.GlobalClusterInfos:
      items.setServiceCIDRs(decodeClusterInfo(bytes));
      break;
    default:
      // A Set that only newer watchers send.
      break;
  }
}

/** Calls `apply` and adds the path to its errors. */
function at(ref: Ref | undefined, apply: (ref: Ref) => void): void {
  if (ref === undefined) throw new WireError("operation without a path");
  try {
    apply(ref);
  } catch (cause) {
    throw new WireError(`invalid item at "${ref.Path}"`, { cause });
  }
}

/** Memory of an operation and of its path, besides its text. */
const opBytes = 512;

/** Encoded endpoints have 100 to 300 bytes. Larger items may have many ports and labels. */
const smallItemBytes = 1_024;

/** Memory of each byte beyond `smallItemBytes`: a port takes 2 bytes or more on the wire, and about 110 in memory. */
const largeItemFactor = 8;

/**
 * Estimates the memory that an operation of a global stream takes until its batch is applied, in bytes. 250 000
 * endpoints give about 190 MB; twice as much from an original KPNG, which sends each endpoint twice. Pure.
 *
 * `apiSource` adds up the operations of a batch, so that an upstream watcher that never ends one cannot fill the memory
 * of the relay.
 */
export function estimateOpBytes({ Op: op }: OpItem): number {
  const pathBytes = (path = ""): number => opBytes + path.length;
  if (op.case === "Delete") return pathBytes(op.value.Path);
  if (op.case !== "Set") return opBytes;
  const { length } = op.value.Bytes;
  return pathBytes(op.value.Ref?.Path) + length + largeItemFactor * Math.max(0, length - smallItemBytes);
}

/**
 * Default limit of a relay for its whole state and for a batch, in bytes: three eighths of the memory limit, what the guide "Sizing"
 * leaves for the cluster state. Pure.
 */
export function defaultStateBytes(memoryBytes: number): number {
  return Math.floor((memoryBytes * 3) / 8);
}

/** Memory of a Service, endpoint or node of the state, with its encodings for nodes, besides its text and ports. */
const itemBytes = 1_280;

/** How often the text of an item is in memory: in its path and keys, in its fields, and encoded. */
const textCopies = 4;

/** Memory of a port, which may take 2 bytes on the wire. */
const portBytes = 120;

/**
 * Estimates the memory that an item of the state takes in a relay, in bytes; an endpoint about 2.2 KiB. `length` is
 * that of the encoded item. Pure.
 */
export function estimateItemBytes(pathLength: number, length: number, portCount: number): number {
  return itemBytes + textCopies * (pathLength + length) + portBytes * portCount;
}
