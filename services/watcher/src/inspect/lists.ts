import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { clusterIdOf } from "@kpng/model/forward.ts";
import { GetStatusResponseSchema, type InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { ApplyState, SubscriberKind } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type ServiceKey, splitServiceKey } from "@kpng/model/service.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import { countObjects, slicesOf } from "../store/snapshot.ts";
import { type ProxyNames, readNodeName, readProxyName, syncedSnapshot } from "../stream/session/requests.ts";
import type { Subscribers } from "../stream/session/subscribers.ts";
import { choosingNode } from "../view/service-view.ts";
import { changeRow, matchesChange } from "./change-record.ts";
import { endpointRows, selectKeys, serviceRow } from "./cluster-rows.ts";
import { decisionRow, explainService } from "./explain-service.ts";
import { type Findings, selectFindings } from "./findings.ts";
import { kindMessage, matchesState, matchesSubscriber, nodeTable, stateOf, subscriberRow } from "./progress-rows.ts";
import type { RecentChanges } from "./recent-changes.ts";

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
        subscribers: countSubscribers(context, snapshot.revision),
        startedAt: timestampOf(startedAtMs),
        version,
        clusterId: clusterIdOf(snapshot.position?.source ?? ""),
      });
    },

    listServices: (request) =>
      query(() => {
        const page = readPage(request);
        const snapshot = syncedSnapshot(store);
        const keys = selectKeys(snapshot.services, request, page.after);
        const { rows, nextPageToken } = fill(page, keys, (key) => {
          const service = snapshot.services.get(key);
          return service === undefined ? [] : [serviceRow(service, slicesOf(snapshot, key as ServiceKey))];
        });
        return { revision: BigInt(snapshot.revision), services: rows, nextPageToken };
      }),

    listEndpoints: (request) =>
      query(() => {
        const page = readPage(request);
        const snapshot = syncedSnapshot(store);
        const filter = { namespace: request.namespace, name: request.service };
        const keys = selectKeys(snapshot.slicesByService, filter, page.after);
        const rowsOf = (key: string) => endpointRows(slicesOf(snapshot, key as ServiceKey), request);
        const { rows, nextPageToken } = fill(page, keys, rowsOf);
        return { revision: BigInt(snapshot.revision), endpoints: rows, nextPageToken };
      }),

    listNodes: (request) =>
      query(() => {
        const page = readPage(request);
        const snapshot = syncedSnapshot(store);
        const table = nodeTable(snapshot, subscribers.open);
        const names = table.names.filter((name) => name > page.after && (request.name || name) === name);
        const rowsOf = (name: string) => [table.row(name)].filter(({ state }) => matchesState(state, request));
        const { rows, nextPageToken } = fill(page, names, rowsOf);
        return { revision: BigInt(snapshot.revision), nodes: rows, nextPageToken };
      }),

    listSubscribers: (request) =>
      query(() => {
        const page = readPage(request);
        const after = readNumber(page.after);
        const { revision } = store.snapshot;
        const open = new Map(Array.from(subscribers.open, (one) => [String(one.id), one] as const));
        const ids = [...open.keys()].filter((id) => Number(id) > after);
        const { rows, nextPageToken } = fill(page, ids, (id) => {
          const one = open.get(id);
          return one && matchesSubscriber(one, request, revision) ? [subscriberRow(one, revision)] : [];
        });
        return { revision: BigInt(revision), subscribers: rows, nextPageToken };
      }),

    listChanges: (request) =>
      query(() => {
        const page = readPage(request, 100);
        const before = readNumber(page.after) || Number.POSITIVE_INFINITY;
        const { revision } = syncedSnapshot(store);
        const filter = { namespace: request.namespace, name: request.service };
        const revisions = Array.from(changes.newestFirst(), (record) => record.revision)
          .filter((each) => each < before)
          .map(String);
        const { rows, nextPageToken } = fill(page, revisions, (each) => {
          const record = changes.at(Number(each));
          return record && matchesChange(record, filter) ? [changeRow(record)] : [];
        });
        return { revision: BigInt(revision), changes: rows, nextPageToken };
      }),

    listFindings: (request) =>
      query(() => ({
        revision: BigInt(store.snapshot.revision),
        ...selectFindings(findings.list(subscribers.now()), request),
      })),

    listNodeEndpoints: (request) =>
      query(() => {
        // A row with an explanation costs more than other rows.
        const page = { ...readPage(request), maxKeys: 500 };
        const nodeName = readRequestedNode(request.nodeName);
        const proxyName = readProxyName(request.serviceProxyName, proxyNames);
        const snapshot = syncedSnapshot(store);
        const node = choosingNode(snapshot, nodeName);
        const filter = { namespace: request.namespace, name: request.service };
        const keys = selectKeys(snapshot.slicesByService, filter, page.after);
        const { rows, nextPageToken } = fill(page, keys, (key) => {
          const slices = slicesOf(snapshot, key as ServiceKey);
          const subject = { ...splitServiceKey(key), service: snapshot.services.get(key), slices };
          return explainService(subject, node, proxyName).map((decision) => decisionRow(decision));
        });
        const isNodeKnown = snapshot.nodes.get(nodeName) !== undefined;
        return { revision: BigInt(snapshot.revision), isNodeKnown, decisions: rows, nextPageToken };
      }),
  } satisfies Partial<ServiceImpl<typeof InspectService>>;
}

/** Returns the node name of a request. Errors: INVALID_ARGUMENT for an invalid or omitted name. */
export function readRequestedNode(name: string): string {
  if (name === "") throw new ConnectError("node_name must not be empty", Code.InvalidArgument);
  return readNodeName(name);
}

interface Page {
  readonly size: number;
  /** Key of the last item of the previous page; "" for the first page. */
  readonly after: string;
  /** Maximum number of items to examine; a page with few matches ends early. */
  readonly maxKeys: number;
}

/** Maximum page_size. A response is encoded in one turn of the event loop: 1 000 Services block it for 10 ms. */
const maxPageSize = 1_000;

/**
 * Decodes page_size and page_token. The token is the last key of the previous page, so it is valid at all replicas.
 * Errors: INVALID_ARGUMENT for a page_size above 1 000.
 */
function readPage({ pageSize, pageToken }: { pageSize: number; pageToken: string }, defaultSize = 500): Page {
  if (pageSize > maxPageSize) {
    throw new ConnectError(`page_size ${pageSize} exceeds the limit of ${maxPageSize}`, Code.InvalidArgument);
  }
  return { size: pageSize === 0 ? defaultSize : pageSize, after: pageToken, maxKeys: 5_000 };
}

/** Decodes the token of a list whose keys are numbers; 0 for the first page. Errors: INVALID_ARGUMENT. */
function readNumber(token: string): number {
  if (/^\d{0,15}$/.test(token)) return Number(token);
  throw new ConnectError(
    "invalid page_token: use the next_page_token of the previous page, or leave it empty",
    Code.InvalidArgument,
  );
}

/**
 * Creates the rows of one key after another until the page is full. The rows of the last key may exceed the page size.
 */
function fill<R>(
  { size, maxKeys }: Page,
  keys: readonly string[],
  rowsOf: (key: string) => Iterable<R>,
): { readonly rows: R[]; readonly nextPageToken: string } {
  const rows: R[] = [];
  let count = 0;
  for (const key of keys) {
    if (rows.length >= size || count === maxKeys) break;
    for (const row of rowsOf(key)) rows.push(row);
    count += 1;
  }
  return { rows, nextPageToken: count === keys.length ? "" : (keys[count - 1] ?? "") };
}

function countSubscribers({ subscribers }: InspectContext, newest: number) {
  const counts = new Map<string, { kind: SubscriberKind; state: ApplyState; count: number }>();
  for (const subscriber of subscribers.open) {
    const row = { kind: kindMessage(subscriber), state: stateOf(subscriber, newest), count: 1 };
    const key = `${row.kind} ${row.state}`;
    counts.set(key, { ...row, count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return [...counts.values()].sort((a, b) => a.kind - b.kind || a.state - b.state);
}
