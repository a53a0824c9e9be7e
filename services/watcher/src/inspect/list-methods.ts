import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node, Service } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { EndpointDecision } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { GetStatusResponseSchema, type InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type {
  ApplyState,
  SubscriberKind,
  Subscriber as SubscriberMessage,
} from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import { countObjects, slicesOf } from "../store/snapshot.ts";
import { readProxyName, syncedSnapshot } from "../stream/session/requests.ts";
import type { Subscriber } from "../stream/session/subscribers.ts";
import { choosingNode } from "../view/service-view.ts";
import type { ChangeRecord } from "./changes/change-record.ts";
import { collectGroups, collectRows } from "./collect-page.ts";
import { explainService } from "./explain/explain-service.ts";
import type { InspectContext } from "./inspect-context.ts";
import { readPage } from "./page.ts";
import { matchesChange, matchesNode, matchesSubscriber, selectKeys } from "./request-filters.ts";
import { readRequestedNode } from "./requested-node.ts";
import { changeRow } from "./rows/change-row.ts";
import { decisionRow } from "./rows/decision-row.ts";
import { endpointRows, matchesEndpoint } from "./rows/endpoint-rows.ts";
import { nodeTable } from "./rows/node-rows.ts";
import { serviceRow } from "./rows/service-row.ts";
import { kindToWire, stateOf, subscriberMessage } from "./rows/subscriber-row.ts";

/**
 * Unary methods of InspectService that return status and lists. The proto file describes their paging. `inspection`
 * registers them; `kpng get` and `kpng top` request them. Separate from `watchMethods`, which stream changes. Rows are
 * made in `rows/`, pages by `collectRows`.
 */
export function listMethods(context: InspectContext): Lists {
  const { store, subscribers, changes, proxyNames, version, startedAtMs } = context;
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
      });
    },

    listServices: async (request, { signal }) => {
      const page = readPage("services", request);
      const snapshot = syncedSnapshot(store);
      const rowOf = (key: string): Service | undefined => {
        const service = snapshot.services.get(key);
        return service && serviceRow(service, slicesOf(snapshot, key as ServiceKey));
      };
      const keyOf = ({ namespace, name }: Service): string => `${namespace}/${name}`;
      const keys = selectKeys(snapshot.services, request, page.after);
      const { rows, nextPageToken } = await collectRows(page, keys, { rowOf, keyOf }, signal);
      return { revision: BigInt(snapshot.revision), services: rows, nextPageToken };
    },

    listEndpoints: async (request, { signal }) => {
      const page = readPage("endpoints", request);
      const snapshot = syncedSnapshot(store);
      const filter = { namespace: request.namespace, name: request.service };
      const keys = selectKeys(snapshot.slicesByService, filter, page.after);
      const rowsOf = (key: string) => [...endpointRows(slicesOf(snapshot, key as ServiceKey), request)];
      const { rows, nextPageToken } = await collectGroups(page, keys, rowsOf, signal);
      return { revision: BigInt(snapshot.revision), endpoints: rows, nextPageToken };
    },

    listNodes: async (request, { signal }) => {
      const page = readPage("nodes", request);
      const snapshot = syncedSnapshot(store);
      const table = nodeTable(snapshot, subscribers.open);
      const names = table.names.filter((name) => name > page.after && (request.name === "" || name === request.name));
      const rowOf = (name: string): Node | undefined => {
        const row = table.row(name);
        return matchesNode(row, request) ? row : undefined;
      };
      const { rows, nextPageToken } = await collectRows(page, names, { rowOf, keyOf: ({ name }) => name }, signal);
      return { revision: BigInt(snapshot.revision), nodes: rows, nextPageToken };
    },

    listSubscribers: async (request, { signal }) => {
      const page = readPage("subscribers", request);
      const after = BigInt(page.after);
      const newest = store.snapshot.revision;
      const rowOf = (subscriber: Subscriber): SubscriberMessage | undefined => {
        const isWanted = BigInt(subscriber.id) > after && matchesSubscriber(subscriber, request, newest);
        return isWanted ? subscriberMessage(subscriber, newest) : undefined;
      };
      const keyOf = ({ id }: SubscriberMessage): string => String(id);
      const { rows, nextPageToken } = await collectRows(page, subscribers.open, { rowOf, keyOf }, signal);
      return { revision: BigInt(newest), subscribers: rows, nextPageToken };
    },

    listChanges: async (request, { signal }) => {
      const page = readPage("changes", request, changeLimits);
      const before = page.after === "" ? undefined : BigInt(page.after);
      const { revision } = syncedSnapshot(store);
      const filter = { namespace: request.namespace, name: request.service };
      const rowOf = (record: ChangeRecord): Change | undefined => {
        const number = BigInt(record.facts.revision);
        const isInRange = number >= request.sinceRevision && (before === undefined || number < before);
        return isInRange && matchesChange(record, filter) ? changeRow(record) : undefined;
      };
      const keyOf = (row: Change): string => String(row.revision);
      const { rows, nextPageToken } = await collectRows(page, changes.newestFirst(), { rowOf, keyOf }, signal);
      return { revision: BigInt(revision), changes: rows, nextPageToken };
    },

    listNodeEndpoints: async (request, { signal }) => {
      const page = readPage("node-endpoints", request);
      const nodeName = readRequestedNode(request.nodeName);
      const proxyName = readProxyName(request.serviceProxyName, proxyNames);
      const snapshot = syncedSnapshot(store);
      const node = choosingNode(snapshot, nodeName);
      const { endpoint: wanted, onlyUnused } = request;
      const rowsOf = (key: string): EndpointDecision[] => {
        const slices = slicesOf(snapshot, key as ServiceKey);
        if (!slices.some(({ endpoints }) => endpoints.some((one) => matchesEndpoint(one, wanted)))) return [];
        const [namespace = "", name = ""] = key.split("/");
        return explainService({ namespace, name, service: snapshot.services.get(key), slices }, node, proxyName)
          .filter(({ isUsed }) => !onlyUnused || !isUsed)
          .filter(({ address, podName }) => wanted === "" || wanted === address || wanted === podName)
          .map((decision) => decisionRow(decision));
      };
      const filter = { namespace: request.namespace, name: request.service };
      const keys = selectKeys(snapshot.slicesByService, filter, page.after);
      const { rows, nextPageToken } = await collectGroups(page, keys, rowsOf, signal);
      const isNodeKnown = snapshot.nodes.get(nodeName) !== undefined;
      return { revision: BigInt(snapshot.revision), isNodeKnown, decisions: rows, nextPageToken };
    },
  };
}

/** Page sizes of listChanges: a change is larger than other rows. */
const changeLimits = { defaultSize: 100, maxSize: 1_000 };

type Lists = Pick<
  ServiceImpl<typeof InspectService>,
  "getStatus" | "listServices" | "listEndpoints" | "listNodes" | "listSubscribers" | "listChanges" | "listNodeEndpoints"
>;

/** Counts the subscribers by kind and state. */
function countSubscribers({ subscribers }: InspectContext, newest: number) {
  const counts = new Map<string, { kind: SubscriberKind; state: ApplyState; count: number }>();
  for (const subscriber of subscribers.open) {
    const row = { kind: kindToWire(subscriber), state: stateOf(subscriber, newest), count: 1 };
    const key = `${row.kind} ${row.state}`;
    counts.set(key, { ...row, count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return [...counts.values()].sort((a, b) => a.kind - b.kind || a.state - b.state);
}
