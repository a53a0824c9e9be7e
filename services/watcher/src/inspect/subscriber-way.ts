import type { ApplyTimings } from "../stream/acknowledgement.ts";
import { type PendingBatch, PendingBatches } from "../stream/pending-batches.ts";
import type { Delivery, Subscriber } from "../stream/subscriber.ts";
import type { DeliveryFollower } from "../stream/subscribers.ts";
import type { ChangeRecord } from "./change-record.ts";

/** Where it is written down what becomes of revisions. */
interface Records {
  /** The oldest revision after this one that may still have a record. */
  oldestAfter(revision: number): number;
  at(revision: number): ChangeRecord | undefined;
  /** Something more is known of them. */
  changed(): void;
}

/**
 * Writes down what becomes of the batches of one subscriber, in the record of each revision that they go over.
 *
 * It is called twice for each subscriber and change, so it makes nothing that would have to be cleared away.
 */
export class SubscriberWay implements DeliveryFollower {
  readonly #subscriber: Subscriber;
  readonly #records: Records;
  readonly #pending = new PendingBatches();

  constructor(subscriber: Subscriber, records: Records) {
    this.#subscriber = subscriber;
    this.#records = records;
  }

  sent({ after, revision }: Delivery, nowMs: number): void {
    // A whole view is no news of a change.
    if (after === 0) return;
    const records = this.#records;
    for (let each = records.oldestAfter(after); each <= revision; each += 1) records.at(each)?.told(nowMs);
    this.#pending.add(after, revision, nowMs);
    records.changed();
  }

  received(): void {
    this.#noteReceipt();
    this.#records.changed();
  }

  acknowledged(nowMs: number, timings: ApplyTimings | undefined): void {
    const [subscriber, pending] = [this.#subscriber, this.#pending];
    const { appliedRevision } = subscriber;
    this.#noteReceipt();
    for (
      let oldest = pending.at(0);
      oldest !== undefined && oldest.revision <= appliedRevision;
      oldest = pending.at(0)
    ) {
      this.#noteApplied(oldest, nowMs, timings);
      pending.dropOldest();
    }
    if (subscriber.failure !== undefined) this.#noteFailure(subscriber.failure);
    this.#records.changed();
  }

  closed(): void {
    const [records, pending] = [this.#records, this.#pending];
    const { hasAcknowledged } = this.#subscriber;
    for (let oldest = pending.at(0); oldest !== undefined; oldest = pending.at(0)) {
      // Of one that never says what it applied, more than its receipt is not to be had.
      if (!oldest.isReceived || hasAcknowledged) {
        for (const record of this.#recordsOf(oldest)) record.lostCount += 1;
      }
      pending.dropOldest();
    }
    records.changed();
  }

  #noteReceipt(): void {
    const { receivedRevision } = this.#subscriber;
    const records = this.#records;
    for (let index = 0; index < this.#pending.count; index += 1) {
      const batch = this.#pending.at(index);
      if (batch === undefined || batch.isReceived || batch.revision > receivedRevision) continue;
      batch.isReceived = true;
      for (let each = records.oldestAfter(batch.after); each <= batch.revision; each += 1) {
        const record = records.at(each);
        if (record !== undefined) record.receivedCount += 1;
      }
    }
  }

  #noteApplied(batch: PendingBatch, nowMs: number, timings: ApplyTimings | undefined): void {
    const { after, revision, sentAtMs } = batch;
    const records = this.#records;
    for (let each = records.oldestAfter(after); each <= revision; each += 1) {
      records.at(each)?.applied(this.#subscriber, sentAtMs, nowMs, timings);
    }
  }

  #noteFailure({ revision, error }: { readonly revision: number; readonly error: string }): void {
    for (let index = 0; index < this.#pending.count; index += 1) {
      const batch = this.#pending.at(index);
      if (batch === undefined || batch.revision > revision) break;
      for (const record of this.#recordsOf(batch)) record.failed(this.#subscriber, error);
    }
  }

  *#recordsOf({ after, revision }: PendingBatch): Iterable<ChangeRecord> {
    for (let each = this.#records.oldestAfter(after); each <= revision; each += 1) {
      const record = this.#records.at(each);
      if (record !== undefined) yield record;
    }
  }
}
