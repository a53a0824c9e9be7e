import { getOrMake } from "@kpng/model/get-or-make.ts";
import { BucketDigests, bucketCount } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { digestOf } from "../../items/item-digests.ts";
import { Bucket, type ItemKey, isService } from "./bucket.ts";
import { perClass } from "./class-values.ts";
import { packFrames } from "./packed-frames.ts";
import { deleteOp } from "./snapshot-delta.ts";

/**
 * The items (encoded Services and endpoints) that a class of nodes shares, by the bucket of their path, and the digest
 * of each bucket. When a subscriber resumes, the digests show which buckets it lacks, and the buckets contain what it
 * is sent.
 *
 * All snapshots in which no item of a bucket changes share the bucket and its encoded frames. *Bound:* for each part
 * (see `perClass`) 16 KiB, a reference to each item, the last changes of each `Bucket`, the compressed bytes of the
 * buckets that were requested, and {@link maxFillings} results of `fillGaps`.
 *
 * `resumeView` gets the index of a class from `bucketIndexes` below. Separate from `resumeView` because the index
 * belongs to a class and lives from snapshot to snapshot; `resumeView` answers one subscriber.
 */
export class BucketIndex {
  readonly digests: BucketDigests;
  readonly #buckets: readonly Bucket[];
  /** Different for each index. */
  readonly id = nextId();
  /** Results of {@link fillGaps} for the class that this part completes, the oldest first. */
  readonly fillings = new Map<string, Frame>();

  private constructor(digests: BucketDigests, buckets: readonly Bucket[]) {
    this.digests = digests;
    this.#buckets = buckets;
  }

  static empty(): BucketIndex {
    return new BucketIndex(new BucketDigests(), new Array<Bucket>(bucketCount).fill(Bucket.empty));
  }

  bucket(number: number): Bucket {
    return this.#buckets[number] ?? Bucket.empty;
  }

  /** *Cost:* 16 KiB, and the buckets of the items. */
  with(removed: readonly Item[], added: readonly Item[]): BucketIndex {
    const digests = this.digests.copy();
    const edits = new Map<number, { readonly gone: Map<string, ItemKey>; readonly added: Item[] }>();
    const editOf = (item: Item) => {
      const digest = digestOf(item);
      digests.toggle(digest);
      return getOrMake(edits, digest.bucket, () => ({ gone: new Map<string, ItemKey>(), added: [] }));
    };
    // By path: an item with equal bytes may be another object by now.
    for (const item of removed) editOf(item).gone.set(item.path, { section: item.section, path: item.path });
    for (const item of added) editOf(item).added.push(item);
    const buckets = this.#buckets.slice();
    for (const [number, edit] of edits) {
      buckets[number] = this.bucket(number).with(edit.gone, edit.added, this.digests.at(number));
    }
    return new BucketIndex(digests, buckets);
  }
}

let lastId = 0;

function nextId(): number {
  lastId += 1;
  return lastId;
}

/** Number of results of `fillGaps` that are kept. Nodes whose own endpoints changed lack other items than the rest. */
const maxFillings = 8;

/** A bucket in which a subscriber lacks items. */
export interface BucketGap {
  readonly number: number;
  /** For each part of the index the number of last changes that it missed; undefined if it lacks the whole bucket. */
  readonly missed: readonly number[] | undefined;
}

/**
 * Returns the operations that fill the gaps of a subscriber: all Services first, because an endpoint needs its Service.
 * Most subscribers that resume at the same time lack the same items, so the last results are kept for them.
 *
 * `indexes` are the parts of a class. `resumeView` calls it for subscribers that understand batches.
 */
export function fillGaps(indexes: readonly BucketIndex[], gaps: readonly BucketGap[]): Frame {
  const asked = gaps.map(({ number, missed }) => `${number}:${missed?.join("+") ?? ""}`);
  const key = [...indexes.map(({ id }) => id), ...asked].join();
  const fillings = indexes.at(-1)?.fillings ?? new Map<string, Frame>();
  const held = fillings.get(key);
  if (held !== undefined) return held;
  const [oldest] = fillings.keys();
  if (oldest !== undefined && fillings.size === maxFillings) fillings.delete(oldest);
  const whole = gaps.flatMap(({ number, missed }) =>
    missed === undefined ? indexes.map((index) => index.bucket(number)) : [],
  );
  const changes = gaps.flatMap((gap) => changesOf(indexes, gap));
  const isServicePut = ({ item }: MissedChange): boolean => item !== undefined && isService(item);
  const frames = [
    ...whole.flatMap(({ serviceFrames }) => serviceFrames),
    ...changes.filter(isServicePut).map(({ frame }) => frame),
    ...whole.flatMap(({ endpointFrames }) => endpointFrames),
    // Always as a batch, in which a Delete may name an item that the subscriber never had.
    ...packFrames(changes.filter((change) => !isServicePut(change)).map(({ frame }) => frame)),
  ];
  const filling = Buffer.concat(frames);
  fillings.set(key, filling);
  return filling;
}

/**
 * True if {@link fillGaps} puts or deletes the item of the class at this path. `resumeView` calls it, because a node's
 * corrections follow only these items: elsewhere the node has them.
 */
export function isFilled(indexes: readonly BucketIndex[], gap: BucketGap, path: string): boolean {
  return gap.missed === undefined || changedKeys(indexes, gap).some((key) => key.path === path);
}

function changedKeys(indexes: readonly BucketIndex[], { number, missed = [] }: BucketGap): readonly ItemKey[] {
  return missed.flatMap((count, part) => indexes[part]?.bucket(number).lastChanged(count) ?? []);
}

/** Returns the current items at the paths that changed in any part, and deletes of those that no part has any more. */
function changesOf(indexes: readonly BucketIndex[], gap: BucketGap): readonly MissedChange[] {
  const changed = new Map(changedKeys(indexes, gap).map((key) => [key.path, key]));
  const items = indexes.flatMap((index) => index.bucket(gap.number).items);
  const puts = items.filter(({ path }) => changed.has(path));
  for (const { path } of puts) changed.delete(path);
  return [...puts.map((item) => ({ item, frame: item.frame })), ...[...changed.values()].map(deleteOp)];
}

/** An item that is put, or the operation that deletes one. */
interface MissedChange {
  readonly item?: Item;
  readonly frame: Frame;
}

/** Returns the bucket index of a class, in one or two parts. See perClass for the cost. */
export const bucketIndexes = perClass(
  () => BucketIndex.empty(),
  (index, removed, added) => index.with(removed, added),
);

/**
 * Returns for each part how many changes of a bucket led from the digest that a subscriber holds of it to the current
 * one. Undefined if it never held this bucket, or changed too often since.
 *
 * `resumeView` calls it for each bucket that differs. *Cost:* one look-up; with two parts, one for each past change of
 * the first.
 */
export function missedChanges(
  indexes: readonly BucketIndex[],
  number: number,
  held: bigint,
): readonly number[] | undefined {
  const [index, ...others] = indexes;
  if (index === undefined) return undefined;
  const [current, bucket] = [index.digests.at(number), index.bucket(number)];
  if (others.length === 0) {
    const missed = held === current ? 0 : bucket.changesSince(held);
    return missed === undefined ? undefined : [missed];
  }
  for (const [missed, digest] of [current, ...bucket.pastDigests].entries()) {
    const rest = missedChanges(others, number, held ^ digest);
    if (rest !== undefined) return [missed, ...rest];
  }
  return undefined;
}
