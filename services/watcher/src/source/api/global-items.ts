import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";
import { Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import type { Service } from "@kpng/model/service.ts";
import type { ClusterObjects } from "../source.ts";

interface SlicedEndpoint {
  readonly slice: Omit<EndpointSlice, "endpoints">;
  readonly endpoint: Endpoint;
}

/** What a global stream has said since its Reset, by path. Bound: one whole cluster state. */
export class GlobalItems {
  readonly services = new Map<string, Service>();
  readonly nodes = new Map<string, Node>();
  readonly endpoints = new Map<string, SlicedEndpoint>();

  clear(): void {
    this.services.clear();
    this.nodes.clear();
    this.endpoints.clear();
  }

  delete(set: SetName, path: string): void {
    if (set === SetName.GlobalServiceInfos) this.services.delete(path);
    else if (set === SetName.GlobalNodeInfos) this.nodes.delete(path);
    else if (set === SetName.GlobalEndpointInfos) this.endpoints.delete(path);
  }

  /** The items as cluster objects; endpoints of one slice are put together again. */
  toObjects(): ClusterObjects {
    const slices = new Map<
      string,
      { readonly slice: Omit<EndpointSlice, "endpoints">; readonly endpoints: Endpoint[] }
    >();
    // By path, so that the same items always make equal slices, in whatever order they came.
    for (const path of [...this.endpoints.keys()].sort()) {
      const item = this.endpoints.get(path);
      if (item === undefined) continue;
      const key = path.slice(0, path.lastIndexOf("|"));
      const slice = slices.get(key);
      if (slice === undefined) slices.set(key, { slice: item.slice, endpoints: [item.endpoint] });
      else slice.endpoints.push(item.endpoint);
    }
    return {
      services: [...this.services.values()],
      nodes: [...this.nodes.values()],
      slices: [...slices.values()].map(({ slice, endpoints }) => ({ ...slice, endpoints })),
    };
  }
}
