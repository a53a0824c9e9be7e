import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Endpoint, Node, Service } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { EndpointDecision } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import {
  GetStatusResponseSchema,
  type InspectService,
  type SubscriberCountSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Subscriber } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import { countObjects } from "../store/count-objects.ts";
import { slicesOf } from "../store/snapshot.ts";
import { readProxyName } from "../stream/session/requests.ts";
import { choosingNode } from "../view/node.ts";
import { explainService } from "./explain/explain-service.ts";
import { type InspectContext, syncedSnapshot } from "./inspect-context.ts";
import { makePageToken, readPage } from "./page.ts";
import { matchesChange, matchesNode, matchesSubscriber, selectKeys } from "./request-filters.ts";
import { readRequestedNode } from "./requested-node.ts";
import { changeRow } from "./rows/change-row.ts";
import { decisionRow } from "./rows/decision-row.ts";
import { endpointRows, matchesEndpoint } from "./rows/endpoint-rows.ts";
import { nodeTable } from "./rows/node-rows.ts";
import { serviceRow } from "./rows/service-row.ts";
import { kindMessage, stateOf, subscriberRow } from "./rows/subscriber-row.ts";
import { visitInTurns } from "./visit-in-turns.ts";

/** Unary methods of InspectService that return status and lists. The proto file describes their paging. */
export function listMethods(context: InspectContext, startedAtMs: number): Lists {
  const { store, subscribers, changes, proxyNames } = context;
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
      });
    },

    listServices: async (request, { signal }) => {
      const { size, after } = readPage("services", request);
      const snapshot = syncedSnapshot(store);
      const keys = selectKeys(snapshot.services, request, after);
      const services: Service[] = [];
      const visit = (key: string): boolean => {
        const service = snapshot.services.get(key);
        if (service !== undefined) services.push(serviceRow(service, slicesOf(snapshot, key as ServiceKey)));
        return true;
      };
      await visitInTurns(keys.slice(0, size), visit, signal);
      const lastKey = keys.length > size ? (keys[size - 1] ?? "") : "";
      return { revision: BigInt(snapshot.revision), services, nextPageToken: makePageToken("services", lastKey) };
    },

    listEndpoints: async (request, { signal }) => {
      const { size, after } = readPage("endpoints", request);
      const snapshot = syncedSnapshot(store);
      const keys = selectKeys(snapshot.slicesByService, { namespace: request.namespace, name: request.service }, after);
      const endpoints: Endpoint[] = [];
      let lastKey = "";
      const visit = (key: string): boolean => {
        endpoints.push(...endpointRows(slicesOf(snapshot, key as ServiceKey), request));
        if (endpoints.length < size) return true;
        lastKey = key === keys.at(-1) ? "" : key;
        return false;
      };
      await visitInTurns(keys, visit, signal);
      return { revision: BigInt(snapshot.revision), endpoints, nextPageToken: makePageToken("endpoints", lastKey) };
    },

    listNodes: async (request, { signal }) => {
      const { size, after } = readPage("nodes", request);
      const snapshot = syncedSnapshot(store);
      const table = nodeTable(snapshot, subscribers.open);
      const names = table.names.filter((name) => name > after && (request.name === "" || name === request.name));
      const nodes: Node[] = [];
      let lastKey = "";
      const visit = (name: string): boolean => {
        const row = table.row(name);
        if (!matchesNode(row, request)) return true;
        if (nodes.length === size) {
          lastKey = nodes.at(-1)?.name ?? "";
          return false;
        }
        nodes.push(row);
        return true;
      };
      await visitInTurns(names, visit, signal);
      return { revision: BigInt(snapshot.revision), nodes, nextPageToken: makePageToken("nodes", lastKey) };
    },

    listSubscribers: async (request, { signal }) => {
      const page = readPage("subscribers", request);
      const after = BigInt(page.after);
      const newest = store.snapshot.revision;
      const rows: Subscriber[] = [];
      let lastKey = "";
      await visitInTurns(
        subscribers.open,
        (subscriber) => {
          if (BigInt(subscriber.id) <= after || !matchesSubscriber(subscriber, request, newest)) return true;
          if (rows.length === page.size) {
            lastKey = String(rows.at(-1)?.id ?? "");
            return false;
          }
          rows.push(subscriberRow(subscriber, newest));
          return true;
        },
        signal,
      );
      return { revision: BigInt(newest), subscribers: rows, nextPageToken: makePageToken("subscribers", lastKey) };
    },

    listChanges: async (request, { signal }) => {
      const page = readPage("changes", request, changeLimits);
      const before = page.after === "" ? undefined : BigInt(page.after);
      const { revision } = syncedSnapshot(store);
      const filter = { namespace: request.namespace, name: request.service };
      const rows: Change[] = [];
      let lastKey = "";
      await visitInTurns(
        changes.newestFirst(),
        (record) => {
          const number = BigInt(record.facts.revision);
          if (number < request.sinceRevision) return false;
          if (before !== undefined && number >= before) return true;
          if (!matchesChange(record, filter)) return true;
          if (rows.length === page.size) {
            lastKey = String(rows.at(-1)?.revision ?? "");
            return false;
          }
          rows.push(changeRow(record));
          return true;
        },
        signal,
      );
      return { revision: BigInt(revision), changes: rows, nextPageToken: makePageToken("changes", lastKey) };
    },

    listNodeEndpoints: async (request, { signal }) => {
      const { size, after } = readPage("node-endpoints", request);
      const nodeName = readRequestedNode(request.nodeName);
      const proxyName = readProxyName(request.serviceProxyName, proxyNames);
      const snapshot = syncedSnapshot(store);
      const node = choosingNode(snapshot, nodeName);
      const filter = { namespace: request.namespace, name: request.service };
      const keys = selectKeys(snapshot.slicesByService, filter, after);
      const decisions: EndpointDecision[] = [];
      let lastKey = "";
      const visit = (key: string): boolean => {
        const slices = slicesOf(snapshot, key as ServiceKey);
        const hasMatch = slices.some(({ endpoints }) =>
          endpoints.some((one) => matchesEndpoint(one, request.endpoint)),
        );
        if (!hasMatch) return true;
        const [namespace = "", name = ""] = key.split("/");
        const of = { namespace, name, service: snapshot.services.get(key), slices };
        for (const decision of explainService(of, node, proxyName)) {
          if (request.onlyUnused && decision.isUsed) continue;
          const { address, podName } = decision;
          if (request.endpoint === "" || request.endpoint === address || request.endpoint === podName) {
            decisions.push(decisionRow(decision));
          }
        }
        if (decisions.length < size) return true;
        lastKey = key === keys.at(-1) ? "" : key;
        return false;
      };
      await visitInTurns(keys, visit, signal);
      const isNodeKnown = snapshot.nodes.get(nodeName) !== undefined;
      return {
        revision: BigInt(snapshot.revision),
        isNodeKnown,
        decisions,
        nextPageToken: makePageToken("node-endpoints", lastKey),
      };
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
function countSubscribers(
  { subscribers }: InspectContext,
  newest: number,
): MessageInitShape<typeof SubscriberCountSchema>[] {
  const counts = new Map<
    string,
    Required<Omit<MessageInitShape<typeof SubscriberCountSchema>, "$typeName" | "$unknown">>
  >();
  for (const subscriber of subscribers.open) {
    const row = { kind: kindMessage(subscriber.kind), state: stateOf(subscriber, newest), count: 1 };
    const key = `${row.kind} ${row.state}`;
    counts.set(key, { ...row, count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return [...counts.values()].sort((a, b) => a.kind - b.kind || a.state - b.state);
}
