import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type ChangedObjectSchema,
  type ChangeSchema,
  FailureSchema,
  ObjectKind,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { timestampOf } from "@kpng/model/wire/time-message.ts";
import type { ShardedMap } from "../store/sharded-map.ts";
import { type Snapshot, triggerTimes, type Update } from "../store/snapshot.ts";
import type { ApplyTimings } from "../stream/session/acknowledgement.ts";
import type { Delivery, DeliveryFollower, PendingBatch, Recipient } from "../stream/session/subscribers.ts";
import { ChangeRecord } from "./change-record.ts";

/**
 * The newest revisions, and how far each has reached the subscribers. `kpng get changes` and `kpng trace` show this
 * data.
 *
 * A batch counts for every revision that it contains. Each node to which a change was sent is counted once: as applied,
 * as failed, as disconnected before its acknowledgement, or as none of these yet.
 *
 * *Bound:* `size` records. *Cost:* a few counters per revision and subscriber.
 */
export class RecentChanges implements DeliveryFollower {
  readonly #size: number;
  /** Ring buffer: the index of a revision is its number modulo the size. */
  readonly #records: (ChangeRecord | undefined)[];
  /**
   * Newest revision with a counted failure, by subscriber. It is needed because each failed retry is reported again.
   */
  readonly #failed = new WeakMap<Recipient, number>();
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

  *newestFirst(): Iterable<ChangeRecord> {
    for (let revision = this.#newest; revision > this.#newest - this.#size; revision -= 1) {
      const record = this.at(revision);
      if (record === undefined) return;
      yield record;
    }
  }

  /**
   * Returns the record of a revision; undefined if the record was overwritten, or if the revision is older than this
   * object.
   */
  at(revision: number): ChangeRecord | undefined {
    const record = this.#records[revision % this.#size];
    return record?.revision === revision ? record : undefined;
  }

  add({ before, next, origin }: Update): void {
    let triggeredAtMs: number | undefined;
    if (before.isSynced) {
      for (const ms of triggerTimes(before, next)) triggeredAtMs = Math.max(triggeredAtMs ?? 0, ms);
    }
    const { revision, storedAtMs } = next;
    const { receivedAtMs } = origin ?? {};
    const record = new ChangeRecord(revision, storedAtMs, {
      ...changedObjects(before, next),
      isFirstList: !before.isSynced,
      source: origin?.source ?? "",
      ...setIfDefined("triggeredAt", triggeredAtMs === undefined ? undefined : timestampOf(triggeredAtMs)),
      ...setIfDefined("receivedAt", receivedAtMs === undefined ? undefined : timestampOf(receivedAtMs)),
    });
    this.#newest = revision;
    this.#version += 1;
    record.version = this.#version;
    this.#records[revision % this.#size] = record;
  }

  sent(recipient: Recipient, delivery: Delivery): void {
    this.#update(delivery, ({ change }) => {
      if (recipient.isNode) change.toldCount += 1;
      else change.otherCount += 1;
    });
  }

  received(recipient: Recipient, batch: PendingBatch): void {
    if (!recipient.isNode) return;
    this.#update(batch, (record) => {
      record.change.receivedCount += 1;
    });
  }

  applied(recipient: Recipient, batch: PendingBatch, atMs: number, timings: ApplyTimings | undefined): void {
    if (!recipient.isNode) return;
    const failed = this.#failed.get(recipient) ?? 0;
    this.#update(batch, (record) => {
      if (record.revision <= failed) record.change.failedCount -= 1;
      record.applied(recipient, batch.sentAtMs, atMs, timings);
    });
  }

  failed(recipient: Recipient, batch: PendingBatch, error: string): void {
    const before = this.#failed.get(recipient) ?? 0;
    if (!recipient.isNode || batch.revision <= before) return;
    this.#failed.set(recipient, batch.revision);
    this.#update(batch, (record) => {
      if (record.revision <= before) return;
      const { nodeName: node, program } = recipient;
      record.change.failedCount += 1;
      if (record.change.failures.length < maxFailures) {
        record.change.failures.push(create(FailureSchema, { node, program, error }));
      }
    });
  }

  lost(recipient: Recipient, batch: PendingBatch): void {
    // A node that failed to apply the batch keeps counting as failed.
    if (!recipient.isNode || batch.revision <= (this.#failed.get(recipient) ?? 0)) return;
    this.#update(batch, (record) => {
      record.change.lostCount += 1;
    });
  }

  #update({ after, revision }: Pick<PendingBatch, "after" | "revision">, update: (record: ChangeRecord) => void): void {
    // A whole view does not count as a delivery of the revisions that it contains.
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

const maxObjects = 100;
const maxFailures = 10;

function changedObjects(before: Snapshot, next: Snapshot): MessageInitShape<typeof ChangeSchema> {
  const objects: MessageInitShape<typeof ChangedObjectSchema>[] = [];
  let objectCount = 0;
  const add = (kind: ObjectKind, before: ShardedMap<unknown>, next: ShardedMap<unknown>): void => {
    for (const key of next.changedKeys(before)) {
      objectCount += 1;
      if (objects.length < maxObjects) objects.push({ kind, key, isDeleted: next.get(key) === undefined });
    }
  };
  add(ObjectKind.SERVICE, before.services, next.services);
  add(ObjectKind.ENDPOINTS, before.slicesByService, next.slicesByService);
  add(ObjectKind.NODE, before.nodes, next.nodes);
  return { objects, objectCount: BigInt(objectCount) };
}
