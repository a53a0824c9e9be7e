import type { Endpoint, Node, Service } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { GetStatusResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type InspectClient, pageSize, readPages } from "../query/inspect-client.ts";

/** The state of a watcher and of its nodes. */
export interface WatcherState {
  readonly status: GetStatusResponse;
  readonly services: readonly Service[];
  readonly endpoints: readonly Endpoint[];
  readonly nodes: readonly Node[];
}

/**
 * Reads the state of a watcher, page by page. The commands that call `findFindings` call it first. Separate from
 * `findFindings`, which is pure. The lists may be some revisions apart, as with any two calls.
 */
export async function readWatcherState(client: InspectClient): Promise<WatcherState> {
  const status = await client.getStatus({});
  if (!status.isSynced) return { status, services: [], endpoints: [], nodes: [] };
  const services = await readPages(
    (pageToken) => client.listServices({ pageSize, pageToken }),
    (page) => page.services,
  );
  const endpoints = await readPages(
    (pageToken) => client.listEndpoints({ pageSize, pageToken }),
    (page) => page.endpoints,
  );
  const nodes = await readPages(
    (pageToken) => client.listNodes({ pageSize, pageToken }),
    (page) => page.nodes,
  );
  return { status, services, endpoints, nodes };
}
