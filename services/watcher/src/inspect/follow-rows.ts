import { type DescMessage, type Message, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { ServiceKey } from "@kpng/model/service.ts";
import { hashBytes } from "@kpng/model/wire/hash.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { changedServices } from "../store/derived.ts";
import { emptySnapshot, type Snapshot } from "../store/snapshot.ts";
import type { InspectContext } from "./inspect-context.ts";
import { matchesService, type ServiceFilter } from "./request-filters.ts";
import { abortError, visitInTurns } from "./visit-in-turns.ts";

/**
 * Yields the changed rows after each revision, starting with all rows. It compares snapshots and keeps no state per
 * row. The watch methods of the inspection API stream these changes to `kpng get --watch`.
 */
export async function* followSnapshots<D extends DescMessage>(
  { store }: InspectContext,
  { schema, read, keyOf, filter }: SnapshotTable<D>,
  signal: AbortSignal,
): AsyncIterable<RowChanges<MessageShape<D>>> {
  let before = emptySnapshot;
  for (let isFirst = true; ; isFirst = false) {
    const snapshot = await store.next(before.revision, signal);
    if (snapshot === undefined) throw abortError(signal);
    const keys = changedServices(before, snapshot);
    const revision = BigInt(snapshot.revision);
    const rows: MessageShape<D>[] = [];
    const deleted: string[] = [];
    const visit = (key: string): boolean => {
      const old = new Map(read(before, key as ServiceKey).map((row) => [keyOf(row), row]));
      for (const row of read(snapshot, key as ServiceKey)) {
        const same = old.get(keyOf(row));
        old.delete(keyOf(row));
        if (same === undefined || !isEqual(schema, same, row)) rows.push(row);
      }
      deleted.push(...old.keys());
      return true;
    };
    await visitInTurns(keys.filter((key) => matchesService(key, filter)).sort(), visit, signal);
    before = snapshot;
    if (isFirst || rows.length + deleted.length > 0) yield* inMessages(revision, rows, deleted);
  }
}

/**
 * Yields the changed rows once a second, starting with all rows. All rows are computed each time, because they change
 * with every acknowledgement, and compared with hashes of what was sent.
 *
 * *Bound:* one hash per row.
 */
export async function* followRows<D extends DescMessage>(
  { store, changes, subscribers }: InspectContext,
  { schema, read, keyOf, mustBeSynced }: RowTable<D>,
  signal: AbortSignal,
): AsyncIterable<RowChanges<MessageShape<D>>> {
  if (mustBeSynced && (await store.next(0, signal)) === undefined) throw abortError(signal);
  let sent = new Map<string, bigint>();
  let seen = "";
  for (let isFirst = true; ; isFirst = false) {
    if (!isFirst) await waitMs(tickMs, signal);
    if (signal.aborted) throw abortError(signal);
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
    await visitInTurns(read(snapshot), visit, signal);
    if (signal.aborted) throw abortError(signal);
    const deleted = [...sent.keys()].filter((key) => !hashes.has(key));
    sent = hashes;
    if (isFirst || rows.length + deleted.length > 0) yield* inMessages(BigInt(snapshot.revision), rows, deleted);
  }
}

/** Shortest time between two messages of a watch whose rows change with acknowledgements, in milliseconds. */
const tickMs = 1_000;

/** Limit for the rows in one message. */
const maxRows = 500;

/** Content of one message of a watch method. */
export interface RowChanges<M> {
  readonly revision: bigint;
  readonly rows: M[];
  readonly deleted: string[];
  /** True in the last message of a batch. */
  readonly isComplete: boolean;
}

/** Rows per Service that are computed from the snapshot alone. */
interface SnapshotTable<D extends DescMessage> {
  readonly schema: D;
  /** Returns the rows of one Service. */
  readonly read: (snapshot: Snapshot, key: ServiceKey) => readonly MessageShape<D>[];
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

/** Splits row changes into messages. */
function* inMessages<M extends Message>(
  revision: bigint,
  rows: readonly M[],
  deleted: string[],
): Iterable<RowChanges<M>> {
  for (let from = 0; from === 0 || from < rows.length; from += maxRows) {
    const isComplete = from + maxRows >= rows.length;
    yield { revision, rows: rows.slice(from, from + maxRows), deleted: isComplete ? deleted : [], isComplete };
  }
}

function isEqual<D extends DescMessage>(schema: D, a: MessageShape<D>, b: MessageShape<D>): boolean {
  return Buffer.from(toBinary(schema, a)).equals(toBinary(schema, b));
}
