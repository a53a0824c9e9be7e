import { triggerTimes, type Update } from "../../store/snapshot.ts";
import type { ApplyTimings } from "../../stream/session/acknowledgement.ts";
import type { Delivery, DeliveryFollower, PendingBatch, Recipient } from "../../stream/session/subscribers.ts";
import { type ChangedObject, ChangeRecord, maxObjects } from "./change-record.ts";
import { LostBatches } from "./lost-batches.ts";

/**
 * The newest revisions, and how far each has reached the subscribers: the data of `kpng get changes` and `kpng trace`.
 *
 * A batch counts for every revision that it contains. A subscriber receives each revision at most once, so the cost is
 * a few counters per revision and subscriber. Counts are of nodes, not of attempts or streams: a node to which a change
 * was sent has applied it, has failed to, has disconnected, or has not answered yet.
 *
 * *Bound:* `size` records.
 *
 * `inspection` creates it and registers it as an observer of the store and of all subscribers. The list and watch
 * methods read it. Separate from the store, which keeps no history. One revision is a `ChangeRecord`.
 */
export class RecentChanges implements DeliveryFollower {
  readonly #size: number;
  /** Ring buffer: the index of a revision is its number modulo the size. */
  readonly #records: (ChangeRecord | undefined)[];
  /** Newest revision for which a failure was counted, by subscriber. A subscriber reports each failed retry again. */
  readonly #failed = new WeakMap<Recipient, number>();
  readonly #lost = new LostBatches();
  #newest = 0;
  #version = 0;

  constructor(size = 1_000) {
    this.#size = size;
    this.#records = new Array<ChangeRecord | undefined>(size);
  }

  /** Incremented by every update, so that watches detect changes. */
  get version(): number {
    return this.#version;
  }

  /** Returns the records, newest first. */
  *newestFirst(): Iterable<ChangeRecord> {
    for (let revision = this.#newest; revision > this.#newest - this.#size; revision -= 1) {
      const record = this.at(revision);
      if (record === undefined) return;
      yield record;
    }
  }

  /** Returns the record of a revision; undefined if it was overwritten, or made before this object. */
  at(revision: number): ChangeRecord | undefined {
    const record = this.#records[revision % this.#size];
    return record?.facts.revision === revision ? record : undefined;
  }

  /** Adds a revision. Observer of the store. */
  add({ before, next, origin }: Update): void {
    const { objects, objectCount } = changedObjects(before, next);
    let triggeredAtMs: number | undefined;
    if (before.isSynced) {
      for (const ms of triggerTimes(before, next)) triggeredAtMs = Math.max(triggeredAtMs ?? 0, ms);
    }
    const { revision, storedAtMs } = next;
    this.#newest = revision;
    const record = new ChangeRecord({
      revision,
      objects,
      objectCount,
      isFirstList: !before.isSynced,
      source: origin?.source ?? "",
      triggeredAtMs,
      receivedAtMs: origin?.receivedAtMs,
      storedAtMs,
    });
    this.#version += 1;
    record.version = this.#version;
    this.#records[revision % this.#size] = record;
  }

  sent(recipient: Recipient, delivery: Delivery, nowMs: number): void {
    this.#update(delivery, (record) => {
      if (recipient.isNode) record.sent(nowMs);
      else record.otherCount += 1;
    });
  }

  received(recipient: Recipient, batch: PendingBatch): void {
    if (!recipient.isNode) return;
    this.#update(batch, (record) => {
      record.receivedCount += 1;
    });
  }

  applied(recipient: Recipient, batch: PendingBatch, atMs: number, timings: ApplyTimings | undefined): void {
    if (!recipient.isNode) return;
    const failed = this.#failed.get(recipient) ?? 0;
    this.#update(batch, (record) => {
      if (record.facts.revision <= failed) record.failedCount -= 1;
      record.applied(recipient, batch.sentAtMs, atMs, timings);
    });
    // Whatever the node lost with earlier streams is part of the view that it has applied now.
    for (const lost of this.#lost.take(recipient)) {
      this.#update(lost, (record) => {
        if (lost.hasFailed) record.failedCount -= 1;
        else record.lostCount -= 1;
        record.applied(recipient, batch.sentAtMs, atMs, undefined);
      });
    }
  }

  failed(recipient: Recipient, batch: PendingBatch, error: string): void {
    const before = this.#failed.get(recipient) ?? 0;
    if (!recipient.isNode || batch.revision <= before) return;
    this.#failed.set(recipient, batch.revision);
    this.#update(batch, (record) => {
      if (record.facts.revision > before) record.failed(recipient, error);
    });
  }

  lost(recipient: Recipient, batch: PendingBatch): void {
    if (!recipient.isNode || batch.after === 0) return;
    // A node that failed to apply the batch stays failed.
    const hasFailed = batch.revision <= (this.#failed.get(recipient) ?? 0);
    this.#lost.add(recipient, { after: batch.after, revision: batch.revision, hasFailed });
    if (hasFailed) return;
    this.#update(batch, (record) => {
      record.lostCount += 1;
    });
  }

  /** Updates the records of the revisions in a batch. */
  #update({ after, revision }: Pick<PendingBatch, "after" | "revision">, update: (record: ChangeRecord) => void): void {
    // A whole view does not count as the delivery of its revisions.
    if (after === 0) return;
    this.#version += 1;
    for (let each = Math.max(after, this.#newest - this.#size) + 1; each <= revision; each += 1) {
      const record = this.at(each);
      if (record === undefined) continue;
      record.version = this.#version;
      update(record);
    }
  }
}

function changedObjects(before: Update["before"], next: Update["next"]) {
  const objects: ChangedObject[] = [];
  let objectCount = 0;
  const add = (kind: ChangedObject["kind"], keys: Iterable<string>, has: (key: string) => boolean): void => {
    for (const key of keys) {
      objectCount += 1;
      if (objects.length < maxObjects) objects.push({ kind, key, isDeleted: !has(key) });
    }
  };
  const { services, slicesByService, nodes } = next;
  add("service", services.changedKeys(before.services), (key) => services.get(key) !== undefined);
  add(
    "endpoints",
    slicesByService.changedKeys(before.slicesByService),
    (key) => slicesByService.get(key) !== undefined,
  );
  add("node", nodes.changedKeys(before.nodes), (key) => nodes.get(key) !== undefined);
  return { objects, objectCount };
}
