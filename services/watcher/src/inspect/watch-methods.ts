import { type DescMessage, type Message, type MessageShape, toBinary } from "@bufbuild/protobuf";
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
import { hashBytes } from "@kpng/model/wire/hash.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { emptySnapshot, type Snapshot, slicesOf } from "../store/snapshot.ts";
import { leaveKey } from "../stream/serve/leave.ts";
import { eachInTurns, stopped } from "./each-in-turns.ts";
import type { InspectContext } from "./inspect-context.ts";
import { isNodeSelected, isSelected, isSubscriberSelected, type ServiceFilter } from "./request-filters.ts";
import { changeRow, concerns } from "./rows/change-row.ts";
import { endpointRowKey, endpointRows } from "./rows/endpoint-rows.ts";
import { nodeTable } from "./rows/node-rows.ts";
import { serviceRow } from "./rows/service-row.ts";
import { subscriberRow } from "./rows/subscriber-row.ts";

/** Shortest time between two messages of a watch of what changes all the time, in milliseconds. */
const tickMs = 1_000;

/** Most rows of one message. */
const maxRows = 500;

type Watches = Pick<
  ServiceImpl<typeof InspectService>,
  "watchServices" | "watchEndpoints" | "watchNodes" | "watchSubscribers" | "watchChanges"
>;

/** The streaming methods of InspectService. */
export function inspectWatches(context: InspectContext): Watches {
  const { subscribers, changes } = context;
  return {
    async *watchServices(request, call) {
      const signal = endOf(call);
      const read = (snapshot: Snapshot, key: string): readonly Service[] => {
        const service = snapshot.services.get(key);
        return service === undefined ? [] : [serviceRow(service, slicesOf(snapshot, key as ServiceKey))];
      };
      const keyOf = ({ namespace, name }: Service): string => `${namespace}/${name}`;
      const table = { schema: ServiceSchema, read, keyOf, filter: request };
      for await (const { rows, ...rest } of followSnapshots(context, table, signal)) yield { ...rest, services: rows };
    },

    async *watchEndpoints(request, call) {
      const signal = endOf(call);
      const read = (snapshot: Snapshot, key: string): readonly Endpoint[] =>
        endpointRows(slicesOf(snapshot, key as ServiceKey), request);
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
          if (isNodeSelected(row, request)) yield row;
        }
      };
      const table = { schema: NodeSchema, read, keyOf: ({ name }: Node) => name, mustBeSynced: true };
      for await (const { rows, ...rest } of followRows(context, table, signal)) yield { ...rest, nodes: rows };
    },

    async *watchSubscribers(request, call) {
      const signal = endOf(call);
      const read = function* ({ revision }: Snapshot): Iterable<Subscriber> {
        for (const subscriber of subscribers.open) {
          if (isSubscriberSelected(subscriber, request, revision)) yield subscriberRow(subscriber, revision);
        }
      };
      const table = { schema: SubscriberSchema, read, keyOf: ({ id }: Subscriber) => String(id), mustBeSynced: false };
      for await (const { rows, deleted, ...rest } of followRows(context, table, signal)) {
        yield { ...rest, subscribers: rows, deleted: deleted.map(BigInt) };
      }
    },

    async *watchChanges(request, call) {
      const signal = endOf(call);
      const read = function* (): Iterable<Change> {
        for (const record of [...changes.newestFirst()].reverse()) {
          const isRecent = BigInt(record.facts.revision) >= request.sinceRevision;
          if (isRecent && concerns(record, request.namespace, request.service)) yield changeRow(record);
        }
      };
      const table = {
        schema: ChangeSchema,
        read,
        keyOf: ({ revision }: Change) => String(revision),
        mustBeSynced: true,
      };
      for await (const { revision, rows, isComplete } of followRows(context, table, signal)) {
        // What is forgotten is no news.
        if (rows.length > 0 || isComplete) yield { revision, changes: rows, isComplete };
      }
    },
  };
}

/** One message of a watch. */
interface Followed<M> {
  readonly revision: bigint;
  readonly rows: M[];
  readonly deleted: string[];
  readonly isComplete: boolean;
}

interface SnapshotTable<D extends DescMessage> {
  readonly schema: D;
  /** The rows of a Service's key. */
  readonly read: (snapshot: Snapshot, key: string) => readonly MessageShape<D>[];
  readonly keyOf: (row: MessageShape<D>) => string;
  readonly filter: ServiceFilter;
}

/** Rows that follow from the snapshot alone: what changed is what differs between two of them, and nothing is remembered. */
async function* followSnapshots<D extends DescMessage>(
  { store }: InspectContext,
  { schema, read, keyOf, filter }: SnapshotTable<D>,
  signal: AbortSignal,
): AsyncIterable<Followed<MessageShape<D>>> {
  let before = emptySnapshot;
  for (let isFirst = true; ; isFirst = false) {
    const snapshot = await store.next(before.revision, signal);
    if (snapshot === undefined) throw stopped(signal);
    const keys = new Set([
      ...snapshot.services.changedKeys(before.services),
      ...snapshot.slicesByService.changedKeys(before.slicesByService),
    ]);
    const revision = BigInt(snapshot.revision);
    const rows: MessageShape<D>[] = [];
    const deleted: string[] = [];
    const visit = (key: string): boolean => {
      const old = new Map(read(before, key).map((row) => [keyOf(row), row]));
      for (const row of read(snapshot, key)) {
        const same = old.get(keyOf(row));
        old.delete(keyOf(row));
        if (same === undefined || !isEqual(schema, same, row)) rows.push(row);
      }
      deleted.push(...old.keys());
      return true;
    };
    await eachInTurns([...keys].filter((key) => isSelected(key, filter)).sort(), visit, signal);
    before = snapshot;
    if (isFirst || rows.length + deleted.length > 0) yield* inMessages(revision, rows, deleted);
  }
}

interface RowTable<D extends DescMessage> {
  readonly schema: D;
  readonly read: (snapshot: Snapshot) => Iterable<MessageShape<D>>;
  readonly keyOf: (row: MessageShape<D>) => string;
  readonly mustBeSynced: boolean;
}

/**
 * Rows that change with every acknowledgement: they are made again each second, and compared with what was sent.
 *
 * *Bound:* a hash for each row.
 */
async function* followRows<D extends DescMessage>(
  { store, changes, subscribers }: InspectContext,
  { schema, read, keyOf, mustBeSynced }: RowTable<D>,
  signal: AbortSignal,
): AsyncIterable<Followed<MessageShape<D>>> {
  if (mustBeSynced && (await store.next(0, signal)) === undefined) throw stopped(signal);
  let sent = new Map<string, bigint>();
  let seen = "";
  for (let isFirst = true; ; isFirst = false) {
    if (!isFirst) await waitMs(tickMs, signal);
    if (signal.aborted) throw stopped(signal);
    const state = `${changes.version} ${subscribers.open.size} ${store.snapshot.revision}`;
    if (state === seen) continue;
    seen = state;
    const { snapshot } = store;
    const rows: MessageShape<D>[] = [];
    const hashes = new Map<string, bigint>();
    const visit = (row: MessageShape<D>): boolean => {
      const key = keyOf(row);
      const hash = hashBytes(toBinary(schema, row));
      hashes.set(key, hash);
      if (sent.get(key) !== hash) rows.push(row);
      return true;
    };
    await eachInTurns(read(snapshot), visit, signal);
    if (signal.aborted) throw stopped(signal);
    const deleted = [...sent.keys()].filter((key) => !hashes.has(key));
    sent = hashes;
    if (isFirst || rows.length + deleted.length > 0) yield* inMessages(BigInt(snapshot.revision), rows, deleted);
  }
}

function* inMessages<M extends Message>(
  revision: bigint,
  rows: readonly M[],
  deleted: string[],
): Iterable<Followed<M>> {
  for (let from = 0; from === 0 || from < rows.length; from += maxRows) {
    const isComplete = from + maxRows >= rows.length;
    yield { revision, rows: rows.slice(from, from + maxRows), deleted: isComplete ? deleted : [], isComplete };
  }
}

function isEqual<D extends DescMessage>(schema: D, a: MessageShape<D>, b: MessageShape<D>): boolean {
  return Buffer.from(toBinary(schema, a)).equals(toBinary(schema, b));
}

/** Aborts when the client is gone, the watcher stops, or the client is asked to go on elsewhere. */
function endOf({ signal, values }: HandlerContext): AbortSignal {
  return AbortSignal.any([signal, values.get(leaveKey)]);
}
