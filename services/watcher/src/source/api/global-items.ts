import { type Endpoint, type EndpointSlice, sliceKey } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { compareText } from "@kpng/model/text-order.ts";
import type { ClusterObjects, ObjectChange } from "../source.ts";

type SliceHead = Omit<EndpointSlice, "endpoints">;

interface SlicedEndpoint {
  readonly slice: SliceHead;
  readonly endpoint: Endpoint;
}

/** What a global stream has said since its Reset, by path. Bound: one whole cluster state. */
export class GlobalItems {
  readonly #services = new Map<string, Service>();
  readonly #nodes = new Map<string, Node>();
  /** Endpoints by path, by the part of the path that names their slice. */
  readonly #slices = new Map<string, Map<string, SlicedEndpoint>>();
  /** What was held before the batch at the paths that it touches. */
  readonly #touchedServices = new Map<string, Service | undefined>();
  readonly #touchedNodes = new Map<string, Node | undefined>();
  readonly #touchedSlices = new Map<string, SliceHead | undefined>();

  #isFresh = true;

  /** True if the batch began anew, with Reset: it is all there is, and no change of what was before. */
  get isFresh(): boolean {
    return this.#isFresh;
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
    this.endBatch();
    this.#isFresh = true;
  }

  putService(path: string, service: Service): void {
    touch(this.#touchedServices, path, this.#services.get(path));
    this.#services.set(path, service);
  }

  putNode(path: string, node: Node): void {
    touch(this.#touchedNodes, path, this.#nodes.get(path));
    this.#nodes.set(path, node);
  }

  putEndpoint(path: string, item: SlicedEndpoint): void {
    const key = sliceOf(path);
    const slice = this.#slices.get(key) ?? new Map<string, SlicedEndpoint>();
    touch(this.#touchedSlices, key, headOf(slice));
    this.#slices.set(key, slice.set(path, item));
  }

  delete(set: SetName, path: string): void {
    if (set === SetName.GlobalServiceInfos) {
      touch(this.#touchedServices, path, this.#services.get(path));
      this.#services.delete(path);
    } else if (set === SetName.GlobalNodeInfos) {
      touch(this.#touchedNodes, path, this.#nodes.get(path));
      this.#nodes.delete(path);
    } else if (set === SetName.GlobalEndpointInfos) {
      const key = sliceOf(path);
      const slice = this.#slices.get(key);
      if (slice === undefined) return;
      touch(this.#touchedSlices, key, headOf(slice));
      slice.delete(path);
      if (slice.size === 0) this.#slices.delete(key);
    }
  }

  /** Forgets what the batch touched: it has been handed on. */
  endBatch(): void {
    for (const touched of [this.#touchedServices, this.#touchedNodes, this.#touchedSlices]) touched.clear();
    this.#isFresh = false;
  }

  /** All items as cluster objects. */
  toObjects(): ClusterObjects {
    return {
      services: [...this.#services.values()],
      nodes: [...this.#nodes.values()],
      slices: [...this.#slices.values()].flatMap((slice) => joined(slice) ?? []),
    };
  }

  /** What the batch has changed, if it is not fresh. *Cost:* what it touched. */
  toChanges(): readonly ObjectChange[] {
    const changes: ObjectChange[] = [];
    for (const [path, before] of this.#touchedServices) {
      const service = this.#services.get(path);
      if (service !== undefined) changes.push({ kind: "put-service", service });
      else if (before !== undefined) changes.push({ kind: "delete-service", key: serviceKey(before) });
    }
    for (const [key, before] of this.#touchedSlices) {
      const slice = joined(this.#slices.get(key));
      if (slice !== undefined) changes.push({ kind: "put-slice", slice });
      else if (before !== undefined) changes.push({ kind: "delete-slice", key: sliceKey(before) });
    }
    for (const [path, before] of this.#touchedNodes) {
      const node = this.#nodes.get(path);
      if (node !== undefined) changes.push({ kind: "put-node", node });
      else if (before !== undefined) changes.push({ kind: "delete-node", name: before.name });
    }
    return changes;
  }
}

function touch<V>(touched: Map<string, V | undefined>, path: string, before: V | undefined): void {
  if (!touched.has(path)) touched.set(path, before);
}

/** *Shape:* an endpoint's path is `namespace|service|slice|key`. */
function sliceOf(path: string): string {
  return path.slice(0, path.lastIndexOf("|"));
}

function headOf(slice: ReadonlyMap<string, SlicedEndpoint>): SliceHead | undefined {
  for (const { slice: head } of slice.values()) return head;
  return undefined;
}

/** Endpoints put together again by path, so that the same items always make equal slices, in whatever order they came. */
function joined(slice: ReadonlyMap<string, SlicedEndpoint> | undefined): EndpointSlice | undefined {
  const [first, ...others] = [...(slice ?? [])].sort(([a], [b]) => compareText(a, b)).map(([, item]) => item);
  if (first === undefined) return undefined;
  return { ...first.slice, endpoints: [first, ...others].map(({ endpoint }) => endpoint) };
}
