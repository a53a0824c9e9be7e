import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import {
  EndpointSchema,
  type Node,
  NodeSchema,
  type Service,
  ServiceSchema,
} from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import type { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { type Subscriber, SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { hashBytes } from "@kpng/model/wire/digest.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changedServices } from "../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { leaveKey } from "../stream/serve/connect-handler.ts";
import type { Scheduler } from "../stream/session/scheduler.ts";
import { endpointRowKey, endpointRows, matchesService, type ServiceFilter, serviceRows } from "./cluster-rows.ts";
import type { InspectContext } from "./lists.ts";
import { matchesSubscriber, nodeRows, subscriberRow } from "./progress-rows.ts";
import { changeRow, matchesChange } from "./recent-changes.ts";

/**
 * Streaming methods of InspectService: each sends all rows, then changed and deleted rows. Rows of Services and
 * endpoints are compared between two snapshots. Other rows also change with acknowledgements, so they are computed once
 * a second and compared with hashes of the previously sent rows.
 *
 * *Bound:* the rows of one message, and one hash for each row that describes a node or a subscriber.
 */
export function watchMethods(context: Pick<InspectContext, "subscribers" | "changes">) {
  const { subscribers, changes } = context;
  const { store, scheduler } = subscribers;
  return {
    async *watchServices(request, call) {
      const keyOf = ({ namespace, name }: Service): string => `${namespace}/${name}`;
      const steps = serviceSteps({ schema: ServiceSchema, keyOf }, serviceRows, request);
      const messages = inMessages(scheduler, revisions(store, endOf(call)), steps);
      for await (const { rows, ...message } of messages) yield { ...message, services: rows };
    },

    async *watchEndpoints(request, call) {
      const read = (snapshot: Snapshot, key: string) => endpointRows(snapshot, key, request);
      const filter = { namespace: request.namespace, name: request.service };
      const steps = serviceSteps({ schema: EndpointSchema, keyOf: endpointRowKey }, read, filter);
      const messages = inMessages(scheduler, revisions(store, endOf(call)), steps);
      for await (const { rows, ...message } of messages) yield { ...message, endpoints: rows };
    },

    async *watchNodes(request, call) {
      const filter = { ...request, node: request.name };
      const read = function* (snapshot: Snapshot): Iterable<Node> {
        for (const [, make] of nodeRows(snapshot, subscribers.open, filter)) yield* make();
      };
      const steps = progressSteps({ schema: NodeSchema, keyOf: ({ name }: Node) => name }, read);
      const messages = inMessages(scheduler, ticks(context, endOf(call), true), steps);
      for await (const { rows, ...message } of messages) yield { ...message, nodes: rows };
    },

    async *watchSubscribers(request, call) {
      const read = function* ({ revision }: Snapshot): Iterable<Subscriber> {
        for (const subscriber of subscribers.open) {
          if (matchesSubscriber(subscriber, request, revision)) yield subscriberRow(subscriber, revision);
        }
      };
      const steps = progressSteps({ schema: SubscriberSchema, keyOf: ({ id }: Subscriber) => String(id) }, read);
      const messages = inMessages(scheduler, ticks(context, endOf(call), false), steps);
      for await (const { rows, deleted, ...message } of messages) {
        yield { ...message, subscribers: rows, deleted: deleted.map(BigInt) };
      }
    },

    async *watchChanges(request, call) {
      const filter = { namespace: request.namespace, name: request.service };
      let lastVersion = -1;
      const steps = function* (): Steps<Change> {
        const changed = [...changes.newestFirst()].filter(({ version }) => version > lastVersion).reverse();
        lastVersion = changes.version;
        for (const record of changed) {
          yield matchesChange(record, filter) ? { row: changeRow(record) } : undefined;
        }
      };
      const messages = inMessages(scheduler, ticks(context, endOf(call), true), steps);
      for await (const { revision, rows, isComplete } of messages) yield { revision, changes: rows, isComplete };
    },
  } satisfies Partial<ServiceImpl<typeof InspectService>>;
}

/** A row to send, the key of a deleted row, or undefined for a row that has not changed. */
type Step<M> = { readonly row: M } | { readonly deleted: string } | undefined;
type Steps<M> = Generator<Step<M>, void, void>;

interface RowKind<D extends DescMessage> {
  readonly schema: D;
  readonly keyOf: (row: MessageShape<D>) => string;
}

/** Hashes of rows by key. */
type Hashes = Map<string, bigint>;

/** Returns a function that compares the rows of changed Services between the previous snapshot and the current one. */
function serviceSteps<D extends DescMessage>(
  kind: RowKind<D>,
  read: (snapshot: Snapshot, key: string) => Iterable<MessageShape<D>>,
  filter: ServiceFilter,
): (snapshot: Snapshot) => Steps<MessageShape<D>> {
  let previous = emptySnapshot;
  return function* (snapshot) {
    const before = previous;
    previous = snapshot;
    const keys = changedServices(before, snapshot).filter((key) => matchesService(key, filter));
    for (const key of keys.sort()) {
      const old: Hashes = new Map();
      for (const row of read(before, key)) {
        old.set(kind.keyOf(row), hashBytes(toBinary(kind.schema, row)));
        yield undefined;
      }
      yield* compare(kind, old, read(snapshot, key));
    }
  };
}

/** Returns a function that compares all rows with the rows of its previous call. */
function progressSteps<D extends DescMessage>(
  kind: RowKind<D>,
  read: (snapshot: Snapshot) => Iterable<MessageShape<D>>,
): (snapshot: Snapshot) => Steps<MessageShape<D>> {
  let sent: Hashes = new Map();
  return function* (snapshot) {
    sent = yield* compare(kind, sent, read(snapshot));
  };
}

/**
 * Compares rows with the hashes of the old rows, and yields the changed and deleted ones. Removes the keys of `rows`
 * from `old`, and returns the hashes of `rows`.
 */
function* compare<D extends DescMessage>(
  { schema, keyOf }: RowKind<D>,
  old: Hashes,
  rows: Iterable<MessageShape<D>>,
): Generator<Step<MessageShape<D>>, Hashes, void> {
  const hashes: Hashes = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    const hash = hashBytes(toBinary(schema, row));
    hashes.set(key, hash);
    yield old.get(key) === hash ? undefined : { row };
    // Of rows with the same key, such as two pods with the node's address, the last one must be sent last.
    old.delete(key);
  }
  for (const key of old.keys()) yield { deleted: key };
  return hashes;
}

async function* revisions(store: Store, signal: AbortSignal): AsyncIterable<Snapshot> {
  for (let revision = 0; ; ) {
    const snapshot = await store.next(revision, signal);
    if (snapshot === undefined) throw abortError(signal);
    yield snapshot;
    ({ revision } = snapshot);
  }
}

/** Minimum interval between two messages, in milliseconds, for rows that change with acknowledgements. */
const tickMs = 1_000;

/**
 * Yields the newest snapshot at most once a second, if objects, streams or acknowledgements may have changed. If
 * `mustBeSynced`, waits for the first synced snapshot; streams exist before it.
 */
async function* ticks(
  { changes, subscribers }: Pick<InspectContext, "subscribers" | "changes">,
  signal: AbortSignal,
  mustBeSynced: boolean,
): AsyncIterable<Snapshot> {
  const { store } = subscribers;
  if (mustBeSynced && (await store.next(0, signal)) === undefined) throw abortError(signal);
  let lastState = "";
  for (; ; await waitMs(tickMs, signal)) {
    if (signal.aborted) throw abortError(signal);
    const state = `${changes.version} ${subscribers.version} ${store.snapshot.revision}`;
    if (state === lastState) continue;
    lastState = state;
    yield store.snapshot;
  }
}

/** Maximum number of steps for one message; they take a few milliseconds. */
const maxSteps = 500;

/**
 * Yields messages with the rows from each snapshot's steps. The steps of a message run as one query of the scheduler,
 * after the previous message has been taken. `isComplete` is true from the last message of the first snapshot on.
 */
async function* inMessages<M>(
  scheduler: Scheduler,
  snapshots: AsyncIterable<Snapshot>,
  stepsTo: (snapshot: Snapshot) => Steps<M>,
) {
  let isFirst = true;
  for await (const snapshot of snapshots) {
    const steps = stepsTo(snapshot);
    for (let isEnd = false; !isEnd; ) {
      const rows: M[] = [];
      const deleted: string[] = [];
      isEnd = await scheduler.run("query", () => {
        for (let count = 0; count < maxSteps; count += 1) {
          const { value: step, done } = steps.next();
          if (done === true) return true;
          if (step === undefined) continue;
          if ("row" in step) rows.push(step.row);
          else deleted.push(step.deleted);
        }
        return false;
      });
      const revision = BigInt(snapshot.revision);
      if (isFirst || rows.length + deleted.length > 0) yield { revision, rows, deleted, isComplete: !isFirst || isEnd };
    }
    isFirst = false;
  }
}

/** Returns a signal that aborts when the client disconnects or is asked to reconnect, or when the watcher stops. */
function endOf({ signal, values }: HandlerContext): AbortSignal {
  return AbortSignal.any([signal, values.get(leaveKey)]);
}

function abortError({ reason }: AbortSignal): ConnectError {
  if (reason instanceof ConnectError) return reason;
  return new ConnectError("the watcher is stopping, or the client disconnected", Code.Unavailable);
}
