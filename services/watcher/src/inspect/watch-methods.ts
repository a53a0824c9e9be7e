import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { type Change, ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import {
  type Endpoint,
  EndpointSchema,
  type Node,
  NodeSchema,
  type Service,
  ServiceSchema,
} from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type Subscriber, SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type Snapshot, slicesOf } from "../store/snapshot.ts";
import { leaveKey } from "../stream/serve/call.ts";
import { followRows, followSnapshots } from "./follow-rows.ts";
import type { InspectContext } from "./inspect-context.ts";
import { matchesChange, matchesNode, matchesSubscriber } from "./request-filters.ts";
import { changeRow } from "./rows/change-row.ts";
import { endpointRowKey, endpointRows } from "./rows/endpoint-rows.ts";
import { nodeTable } from "./rows/node-rows.ts";
import { serviceRow } from "./rows/service-row.ts";
import { subscriberMessage } from "./rows/subscriber-row.ts";

type Watches = Pick<
  ServiceImpl<typeof InspectService>,
  "watchServices" | "watchEndpoints" | "watchNodes" | "watchSubscribers" | "watchChanges"
>;

/**
 * Streaming methods of InspectService: each sends all rows first, and then the changed and deleted rows. Rows of
 * Services and endpoints change only with the snapshot (`followSnapshots`). The other rows also change with
 * acknowledgements, so they are compared at intervals (`followRows`).
 *
 * `inspection` registers them; `kpng get --watch` requests them. Separate from `listMethods`, which answer once.
 */
export function watchMethods(context: InspectContext): Watches {
  const { subscribers, changes } = context;
  return {
    async *watchServices(request, call) {
      const signal = endOf(call);
      const read = (snapshot: Snapshot, key: ServiceKey): readonly Service[] => {
        const service = snapshot.services.get(key);
        return service === undefined ? [] : [serviceRow(service, slicesOf(snapshot, key))];
      };
      const keyOf = ({ namespace, name }: Service): string => `${namespace}/${name}`;
      const table = { schema: ServiceSchema, read, keyOf, filter: request };
      for await (const { rows, ...rest } of followSnapshots(context, table, signal)) yield { ...rest, services: rows };
    },

    async *watchEndpoints(request, call) {
      const signal = endOf(call);
      const read = (snapshot: Snapshot, key: ServiceKey): Iterable<Endpoint> =>
        endpointRows(slicesOf(snapshot, key), request);
      const filter = { namespace: request.namespace, name: request.service };
      const table = { schema: EndpointSchema, read, keyOf: endpointRowKey, filter };
      for await (const { rows, ...rest } of followSnapshots(context, table, signal)) yield { ...rest, endpoints: rows };
    },

    async *watchNodes(request, call) {
      const signal = endOf(call);
      const read = function* (snapshot: Snapshot): Iterable<Node> {
        const table = nodeTable(snapshot, subscribers.open);
        for (const name of table.names) {
          if (request.name !== "" && request.name !== name) continue;
          const row = table.row(name);
          if (matchesNode(row, request)) yield row;
        }
      };
      const table = { schema: NodeSchema, read, keyOf: ({ name }: Node) => name, mustBeSynced: true };
      for await (const { rows, ...rest } of followRows(context, table, signal)) yield { ...rest, nodes: rows };
    },

    async *watchSubscribers(request, call) {
      const signal = endOf(call);
      const read = function* ({ revision }: Snapshot): Iterable<Subscriber> {
        for (const subscriber of subscribers.open) {
          if (matchesSubscriber(subscriber, request, revision)) yield subscriberMessage(subscriber, revision);
        }
      };
      const table = { schema: SubscriberSchema, read, keyOf: ({ id }: Subscriber) => String(id), mustBeSynced: false };
      for await (const { rows, deleted, ...rest } of followRows(context, table, signal)) {
        yield { ...rest, subscribers: rows, deleted: deleted.map(BigInt) };
      }
    },

    async *watchChanges(request, call) {
      const signal = endOf(call);
      const filter = { namespace: request.namespace, name: request.service };
      const read = function* (): Iterable<Change> {
        for (const record of [...changes.newestFirst()].reverse()) {
          const isRecent = BigInt(record.facts.revision) >= request.sinceRevision;
          if (isRecent && matchesChange(record, filter)) yield changeRow(record);
        }
      };
      const table = {
        schema: ChangeSchema,
        read,
        keyOf: ({ revision }: Change) => String(revision),
        mustBeSynced: true,
      };
      for await (const { revision, rows, isComplete } of followRows(context, table, signal)) {
        // Dropped records are not reported as deleted.
        if (rows.length > 0 || isComplete) yield { revision, changes: rows, isComplete };
      }
    },
  };
}

/** Returns a signal that aborts when the client disconnects, the watcher stops, or the client is asked to reconnect. */
function endOf({ signal, values }: HandlerContext): AbortSignal {
  return AbortSignal.any([signal, values.get(leaveKey)]);
}
