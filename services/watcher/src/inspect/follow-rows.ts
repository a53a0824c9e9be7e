import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { ServiceKey } from "@kpng/model/service.ts";
import { hashBytes } from "@kpng/model/wire/digest.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changedServices } from "../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../store/snapshot.ts";
import type { InspectContext } from "./inspect-context.ts";
import { matchesService, type ServiceFilter } from "./request-filters.ts";
import { abortError, visitInTurns } from "./visit-in-turns.ts";

/**
 * Yields the changed rows after each revision, starting with all rows. It compares snapshots and keeps no state per
 * row: unlike {@link followRows}, it is for rows that depend on the snapshot alone.
 *
 * *Bound:* the rows of one message, which are made when the client has taken the previous message, and one hash for
 * each row that a changed Service had before.
 *
 * `watchMethods` streams these changes to `kpng get --watch`. Separate from it, because five methods share the two
 * functions of this file.
 */
export async function* followSnapshots<D extends DescMessage>(
  { store }: InspectContext,
  table: SnapshotTable<D>,
  signal: AbortSignal,
): AsyncIterable<RowChanges<MessageShape<D>>> {
  let before = emptySnapshot;
  for (let isFirst = true; ; isFirst = false) {
    const snapshot = await store.next(before.revision, signal);
    if (snapshot === undefined) throw abortError(signal);
    yield* inMessages(BigInt(snapshot.revision), stepsBetween(table, before, snapshot), isFirst, signal);
    before = snapshot;
  }
}

/**
 * Yields the changed rows of nodes, subscribers or changes once a second, starting with all rows. All rows are computed
 * each time, because they change with every acknowledgement, and compared with hashes of what was sent.
 *
 * *Bound:* one hash per row, and the rows of one message.
 */
export async function* followRows<D extends DescMessage>(
  { store, changes, subscribers }: InspectContext,
  { schema, read, keyOf, mustBeSynced }: RowTable<D>,
  signal: AbortSignal,
): AsyncIterable<RowChanges<MessageShape<D>>> {
  if (mustBeSynced && (await store.next(0, signal)) === undefined) throw abortError(signal);
  let sent = new Map<string, bigint>();
  let seen = "";
  const stepsTo = function* (snapshot: Snapshot): Steps<MessageShape<D>> {
    const hashes = new Map<string, bigint>();
    for (const row of read(snapshot)) {
      const key = keyOf(row);
      const hash = hashBytes(toBinary(schema, row));
      hashes.set(key, hash);
      yield sent.get(key) === hash ? undefined : { row };
    }
    for (const key of sent.keys()) if (!hashes.has(key)) yield { deleted: key };
    sent = hashes;
  };
  for (let isFirst = true; ; isFirst = false) {
    if (!isFirst) await waitMs(tickMs, signal);
    if (signal.aborted) throw abortError(signal);
    const state = `${changes.version} ${subscribers.open.size} ${store.snapshot.revision}`;
    if (state === seen) continue;
    seen = state;
    const { snapshot } = store;
    yield* inMessages(BigInt(snapshot.revision), stepsTo(snapshot), isFirst, signal);
  }
}

/** Shortest time between two messages of a watch whose rows change with acknowledgements, in milliseconds. */
const tickMs = 1_000;

/** Limit for the rows and the deleted keys in one message. */
const maxRows = 500;

/** Content of one message of a watch method. */
export interface RowChanges<M> {
  readonly revision: bigint;
  readonly rows: M[];
  readonly deleted: string[];
  /** True from the last message of the initial state on. */
  readonly isComplete: boolean;
}

/** Rows per Service that are computed from the snapshot alone. */
interface SnapshotTable<D extends DescMessage> {
  readonly schema: D;
  /** Returns the rows of one Service. */
  readonly read: (snapshot: Snapshot, key: ServiceKey) => Iterable<MessageShape<D>>;
  readonly keyOf: (row: MessageShape<D>) => string;
  readonly filter: ServiceFilter;
}

/** Rows that also depend on subscribers. */
interface RowTable<D extends DescMessage> {
  readonly schema: D;
  readonly read: (snapshot: Snapshot) => Iterable<MessageShape<D>>;
  readonly keyOf: (row: MessageShape<D>) => string;
  /** True if the watch starts only when the store is synced. */
  readonly mustBeSynced: boolean;
}

/** A row to send, the key of a deleted row, or undefined for a row that has not changed. */
type Steps<M> = Generator<{ readonly row: M } | { readonly deleted: string } | undefined, void, void>;

function* stepsBetween<D extends DescMessage>(
  { schema, read, keyOf, filter }: SnapshotTable<D>,
  before: Snapshot,
  snapshot: Snapshot,
): Steps<MessageShape<D>> {
  const keys = changedServices(before, snapshot).filter((key) => matchesService(key, filter));
  for (const key of keys.sort()) {
    const old = new Map<string, bigint>();
    for (const row of read(before, key as ServiceKey)) {
      old.set(keyOf(row), hashBytes(toBinary(schema, row)));
      yield undefined;
    }
    for (const row of read(snapshot, key as ServiceKey)) {
      const oldHash = old.get(keyOf(row));
      old.delete(keyOf(row));
      yield oldHash !== undefined && oldHash === hashBytes(toBinary(schema, row)) ? undefined : { row };
    }
    for (const deleted of old.keys()) yield { deleted };
  }
}

/** Yields messages with the rows of the steps. The steps of a message run when the previous message was taken. */
async function* inMessages<M>(
  revision: bigint,
  steps: Steps<M>,
  isFirst: boolean,
  signal: AbortSignal,
): AsyncIterable<RowChanges<M>> {
  for (let isEnd = false; !isEnd; ) {
    const rows: M[] = [];
    const deleted: string[] = [];
    const visit = (step: { readonly row: M } | { readonly deleted: string } | undefined): boolean => {
      if (step !== undefined && "row" in step) rows.push(step.row);
      else if (step !== undefined) deleted.push(step.deleted);
      return rows.length + deleted.length < maxRows;
    };
    isEnd = await visitInTurns(steps, visit, signal);
    if (isFirst || rows.length + deleted.length > 0) yield { revision, rows, deleted, isComplete: !isFirst || isEnd };
  }
}
