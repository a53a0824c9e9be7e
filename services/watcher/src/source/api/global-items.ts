import { type Endpoint, type EndpointSlice, sliceKey } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
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
 *
 * Separate from the store, because a batch takes effect only when it is complete.
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
