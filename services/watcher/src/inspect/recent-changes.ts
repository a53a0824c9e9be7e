import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Change,
  type ChangedObjectSchema,
  ChangeSchema,
  type DistributionSchema,
  FailureSchema,
  ObjectKind,
  SlowestSubscriberSchema,
  StagesSchema,
} from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { setIfDefined } from "@kpng/model/wire/service-message.ts";
import { durationOf, timestampOf } from "@kpng/model/wire/time-message.ts";
import type { ShardedMap } from "../store/sharded-map.ts";
import { type Snapshot, triggerTimes, type Update } from "../store/snapshot.ts";
import type { ApplyTimings } from "../stream/session/acknowledgement.ts";
import type { Delivery, DeliveryFollower, PendingBatch, Recipient } from "../stream/session/subscribers.ts";
import { matchesService, type ServiceFilter } from "./cluster-rows.ts";
import { timingsMessage } from "./progress-rows.ts";

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

/** One revision, and how far it has reached the subscribers. *Bound:* 100 objects, 10 failures and 6 distributions. */
class ChangeRecord {
  readonly revision: number;
  readonly storedAtMs: number;
  /** The fields of the message that are not listed below. */
  readonly change: Change;
  /** Version of `RecentChanges` at the last update. */
  version = 0;
  /** Durations of the stages across all subscribers; undefined until the first subscriber has applied the revision. */
  stages: StageTimes | undefined;

  constructor(revision: number, storedAtMs: number, facts: MessageInitShape<typeof ChangeSchema>) {
    this.revision = revision;
    this.storedAtMs = storedAtMs;
    this.change = create(ChangeSchema, { revision: BigInt(revision), storedAt: timestampOf(storedAtMs), ...facts });
  }

  applied({ nodeName, program }: Recipient, sentAtMs: number, nowMs: number, timings: ApplyTimings | undefined): void {
    const totalMs = nowMs - this.storedAtMs;
    // Pending batches for a slow subscriber are merged, and the merged batch keeps the send time of the first one.
    const sendMs = Math.max(0, sentAtMs - this.storedAtMs);
    const onNodeMs = timings === undefined ? 0 : timings.waitMs + timings.renderMs + timings.commitMs;
    const transitMs = Math.max(0, totalMs - sendMs - onNodeMs);
    if (this.stages === undefined || totalMs > this.stages.total.maxMs) {
      this.change.slowest = create(SlowestSubscriberSchema, {
        node: nodeName,
        program,
        send: durationOf(sendMs),
        transit: durationOf(transitMs),
        ...setIfDefined("timings", timings && timingsMessage(timings)),
        total: durationOf(totalMs),
      });
    }
    this.change.appliedCount += 1;
    const stages = this.stages ?? byStage(() => new Distribution());
    this.stages = stages;
    stages.send.add(sendMs);
    stages.total.add(totalMs);
    // If the node sends no durations, the network time is unknown.
    if (timings === undefined) return;
    stages.transit.add(transitMs);
    stages.wait.add(timings.waitMs);
    stages.render.add(timings.renderMs);
    stages.commit.add(timings.commitMs);
  }
}

type Stage = "send" | "transit" | "wait" | "render" | "commit" | "total";

type StageTimes = Readonly<Record<Stage, Distribution>>;

function byStage<T>(make: (stage: Stage) => T): Readonly<Record<Stage, T>> {
  const [send, transit, wait] = [make("send"), make("transit"), make("wait")];
  return { send, transit, wait, render: make("render"), commit: make("commit"), total: make("total") };
}

/** True if a change affects a matching Service. Only the objects that the record names (at most 100) are considered. */
export function matchesChange({ change }: ChangeRecord, filter: ServiceFilter): boolean {
  if (filter.namespace === "" && filter.name === "") return true;
  return change.objects.some(({ kind, key }) => kind !== ObjectKind.NODE && matchesService(key, filter));
}

export function changeRow({ change, stages }: ChangeRecord): Change {
  return {
    ...change,
    failures: [...change.failures],
    ...setIfDefined(
      "stages",
      stages &&
        create(
          StagesSchema,
          byStage((stage) => distributionMessage(stages[stage])),
        ),
    ),
  };
}

function distributionMessage(times: Distribution): MessageInitShape<typeof DistributionSchema> {
  return {
    count: times.count,
    p50: durationOf(times.percentileMs(0.5)),
    p99: durationOf(times.percentileMs(0.99)),
    max: durationOf(times.maxMs),
  };
}

/** Histogram of durations, with 64 exponential buckets, and their exact maximum. */
export class Distribution {
  readonly #counts = new Uint32Array(bucketCount);
  #count = 0;
  #maxMs = 0;

  get count(): number {
    return this.#count;
  }

  /** 0 if nothing was measured. */
  get maxMs(): number {
    return this.#maxMs;
  }

  /** Adds a duration. Negative durations, which occur when a clock is set back, count as 0. */
  add(ms: number): void {
    const bucket = ms <= firstMs ? 0 : Math.ceil(Math.log2(ms / firstMs) * bucketsPerDoubling);
    const index = bucket < bucketCount ? bucket : bucketCount - 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#count += 1;
    if (ms > this.#maxMs) this.#maxMs = ms;
  }

  /** Returns a percentile in milliseconds (`fraction` 0.5 is the median); 0 if nothing was measured. */
  percentileMs(fraction: number): number {
    const rank = Math.ceil(this.#count * fraction);
    if (rank === this.#count) return this.#maxMs;
    let countSoFar = 0;
    for (const [index, count] of this.#counts.entries()) {
      countSoFar += count;
      // Returns the geometric middle of the bucket.
      if (countSoFar >= rank && count > 0) return Math.min(firstMs * growth ** (index - 0.5), this.#maxMs);
    }
    return 0;
  }
}

const bucketCount = 64;
/** Upper bound of the first bucket, in milliseconds. */
const firstMs = 0.05;
/** Ratio between the bounds of a bucket. Percentiles up to 12.6 minutes are at most 15 % off. */
const growth = 1.3;
const bucketsPerDoubling = 1 / Math.log2(growth);
