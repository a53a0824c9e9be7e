import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { clusterIdOf } from "@kpng/model/forward.ts";
import type { EndpointDecision } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { GetStatusResponseSchema, type InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import { countObjects } from "../store/snapshot.ts";
import { type ProxyNames, readNodeName, readProxyName, syncedSnapshot } from "../stream/session/requests.ts";
import type { Subscribers } from "../stream/session/subscribers.ts";
import { choosingNode } from "../view/service-view.ts";
import { endpointRows, selectKeys, serviceRows } from "./cluster-rows.ts";
import { decisionRow, explainService } from "./explain-service.ts";
import { type Findings, selectFindings } from "./findings.ts";
import { matchesSubscriber, nodeRows, subscriberRow } from "./progress-rows.ts";
import { changeRow, matchesChange, type RecentChanges } from "./recent-changes.ts";

export interface InspectContext {
  readonly subscribers: Subscribers;
  readonly proxyNames: ProxyNames;
  readonly changes: RecentChanges;
  readonly findings: Findings;
  /** Start of the watcher, in milliseconds since 1970. */
  readonly startedAtMs: number;
  /** Version of the program; "" if unknown. */
  readonly version: string;
}

/**
 * Unary methods of InspectService that return the status and lists, paged as the proto file describes. Each page is a
 * separate query for the scheduler, so that lists do not delay updates to nodes.
 */
export function listMethods(context: InspectContext) {
  const { subscribers, changes, findings, proxyNames, version, startedAtMs } = context;
  const { store } = subscribers;
  const query = <T>(answer: () => T): Promise<T> => subscribers.scheduler.run("query", answer);
  const list = <R>(request: PageRequest, entriesAfter: (token: string) => readonly Entry<R>[], maxObjects?: number) =>
    query(() => ({ revision: BigInt(store.snapshot.revision), ...fill(request, entriesAfter, maxObjects) }));
  return {
    getStatus: () => {
      const { snapshot, instance, missingKinds } = store;
      return create(GetStatusResponseSchema, {
        instance,
        revision: BigInt(snapshot.revision),
        isSynced: snapshot.isSynced,
        missingKinds: [...missingKinds],
        ...setIfDefined("storedAt", snapshot.revision === 0 ? undefined : timestampOf(snapshot.storedAtMs)),
        ...countObjects(snapshot),
        startedAt: timestampOf(startedAtMs),
        version,
        clusterId: clusterIdOf(snapshot.position?.source ?? ""),
      });
    },

    listServices: async (request) => {
      const { rows, ...page } = await list(request, (after) => {
        const snapshot = syncedSnapshot(store);
        const keys = selectKeys(snapshot.services, request, after);
        return keys.map((key) => [key, () => serviceRows(snapshot, key)]);
      });
      return { ...page, services: rows };
    },

    listEndpoints: async (request) => {
      const { rows, ...page } = await list(request, (after) => {
        const snapshot = syncedSnapshot(store);
        const keys = selectKeys(snapshot.slicesByService, { ...request, name: request.service }, after);
        return keys.map((key) => [key, () => endpointRows(snapshot, key, request)]);
      });
      return { ...page, endpoints: rows };
    },

    listNodes: async (request) => {
      const { rows, ...page } = await list(request, (after) => {
        const entries = nodeRows(syncedSnapshot(store), subscribers.open, { ...request, node: request.name });
        return entries.filter(([name]) => name > after);
      });
      return { ...page, nodes: rows };
    },

    listSubscribers: async (request) => {
      const { rows, ...page } = await list(request, (after) => {
        const { revision } = store.snapshot;
        const start = readNumber(after);
        return [...subscribers.open]
          .filter((one) => one.id > start && matchesSubscriber(one, request, revision))
          .map((one) => [String(one.id), () => [subscriberRow(one, revision)]]);
      });
      return { ...page, subscribers: rows };
    },

    listChanges: async (request) => {
      const { rows, ...page } = await list({ ...request, pageSize: request.pageSize || 100 }, (after) => {
        syncedSnapshot(store);
        const before = readNumber(after) || Number.POSITIVE_INFINITY;
        const filter = { ...request, name: request.service };
        return [...changes.newestFirst()]
          .filter((record) => record.revision < before && matchesChange(record, filter))
          .map((record) => [String(record.revision), () => [changeRow(record)]]);
      });
      return { ...page, changes: rows };
    },

    listFindings: (request) =>
      query(() => ({
        revision: BigInt(store.snapshot.revision),
        ...selectFindings(findings.list(subscribers.now()), request),
      })),

    listNodeEndpoints: async (request) => {
      const nodeName = readRequestedNode(request.nodeName);
      const proxyName = readProxyName(request.serviceProxyName, proxyNames);
      let isNodeKnown = false;
      const decisionsAfter = (after: string): readonly Entry<EndpointDecision>[] => {
        const snapshot = syncedSnapshot(store);
        const node = choosingNode(snapshot, nodeName);
        isNodeKnown = snapshot.nodes.get(nodeName) !== undefined;
        const keys = selectKeys(snapshot.slicesByService, { ...request, name: request.service }, after);
        return keys.map((key) => {
          const explain = () => explainService(snapshot, key as ServiceKey, node, proxyName);
          return [key, () => explain().map((decision) => decisionRow(decision))];
        });
      };
      // Each node may call this, and to explain a Service takes longer than to list it.
      const { rows, ...page } = await list(request, decisionsAfter, 500);
      return { ...page, isNodeKnown, decisions: rows };
    },
  } satisfies Partial<ServiceImpl<typeof InspectService>>;
}

/** Returns the node name of a request. Errors: INVALID_ARGUMENT for an invalid or omitted name. */
export function readRequestedNode(name: string): string {
  if (name === "") throw new ConnectError("node_name must not be empty", Code.InvalidArgument);
  return readNodeName(name);
}

/** Maximum page_size. A response is encoded in one turn of the event loop: 1 000 Services block it for 10 ms. */
const maxPageSize = 1_000;

/** Decodes the token of a list whose keys are numbers; 0 for the first page. Errors: INVALID_ARGUMENT. */
function readNumber(token: string): number {
  if (/^\d{0,15}$/.test(token)) return Number(token);
  throw new ConnectError(
    "invalid page_token: use the next_page_token of the previous page, or leave it empty",
    Code.InvalidArgument,
  );
}

/** The key of an object, which is the page token of the objects after it, and a function that makes its rows. */
type Entry<R> = readonly [key: string, make: () => Iterable<R>];

interface PageRequest {
  readonly pageSize: number;
  readonly pageToken: string;
}

/**
 * Makes the rows of one object after another until the page is full. The rows of the last object may exceed the page
 * size; a page with few matches ends after `maxObjects`. The token is the last key of the previous page, so it is valid
 * at all replicas. Errors: INVALID_ARGUMENT for a page_size above 1 000.
 */
function fill<R>(
  { pageSize, pageToken }: PageRequest,
  entriesAfter: (token: string) => readonly Entry<R>[],
  maxObjects = 5_000,
): { readonly rows: R[]; readonly nextPageToken: string } {
  if (pageSize > maxPageSize) {
    throw new ConnectError(`page_size ${pageSize} exceeds the limit of ${maxPageSize}`, Code.InvalidArgument);
  }
  const entries = entriesAfter(pageToken);
  const rows: R[] = [];
  let lastKey = "";
  for (const [index, [key, make]] of entries.entries()) {
    if (rows.length >= (pageSize || 500) || index === maxObjects) return { rows, nextPageToken: lastKey };
    for (const row of make()) rows.push(row);
    lastKey = key;
  }
  return { rows, nextPageToken: "" };
}
