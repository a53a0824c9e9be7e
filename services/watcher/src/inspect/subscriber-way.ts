import type { Delivery, Subscriber } from "../stream/subscriber.ts";
import type { DeliveryFollower } from "../stream/subscribers.ts";
import type { ChangeRecord } from "./change-record.ts";
import { type PendingBatch, PendingBatches } from "./pending-batches.ts";

/** Where it is written down what becomes of revisions. */
interface Records {
  /** Calls `note` with the records after one revision up to another. */
  each(after: number, revision: number, note: (record: ChangeRecord) => void): void;
  /** Something more is known of them. */
  changed(): void;
}

/** Writes down what becomes of the batches of one subscriber, in the record of each revision that they go over. */
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
    this.#records.each(after, revision, (record) => record.told(nowMs));
    this.#pending.add(after, revision, nowMs);
    this.#records.changed();
  }

  received(): void {
    this.#pending.keep((batch) => {
      this.#markReceived(batch);
      return true;
    });
    this.#records.changed();
  }

  acknowledged(nowMs: number): void {
    const { appliedRevision, failure, timings } = this.#subscriber;
    this.#pending.keep((batch) => {
      const { after, revision, sentAtMs } = batch;
      this.#markReceived(batch);
      if (revision <= appliedRevision) {
        this.#records.each(after, revision, (record) => record.applied(this.#subscriber, sentAtMs, nowMs, timings));
        return false;
      }
      if (failure !== undefined && revision <= failure.revision) {
        this.#records.each(after, revision, (record) => record.failed(this.#subscriber, failure.error));
      }
      return true;
    });
    this.#records.changed();
  }

  closed(): void {
    const { hasAcknowledged } = this.#subscriber;
    this.#pending.keep(({ after, revision, isReceived }) => {
      // Of one that never says what it applied, more than its receipt is not to be had.
      if (isReceived && !hasAcknowledged) return false;
      this.#records.each(after, revision, (record) => {
        record.lostCount += 1;
      });
      return false;
    });
    this.#records.changed();
  }

  #markReceived(batch: PendingBatch): void {
    if (batch.isReceived || batch.revision > this.#subscriber.receivedRevision) return;
    batch.isReceived = true;
    this.#records.each(batch.after, batch.revision, (record) => {
      record.receivedCount += 1;
    });
  }
}
