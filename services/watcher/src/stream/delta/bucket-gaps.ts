import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { type ItemKey, isService } from "./bucket.ts";
import type { BucketIndex } from "./bucket-index.ts";
import { packInSteps } from "./packed-frames.ts";
import { pause } from "./projection.ts";
import { deleteOp } from "./snapshot-delta.ts";

/**
 * A bucket in which a subscriber that resumes lacks items.
 *
 * The functions of this file find what it missed of each bucket, and compute what fills the gaps. `resumeView` calls
 * them. Separate from `resumeView`, because subscribers with the same gaps share the result, and from `BucketIndex`,
 * which knows no subscriber. The parameter `indexes` contains the parts of a class; see `perClass`.
 */
export interface BucketGap {
  readonly number: number;
  /** For each part of the index the number of last changes that it missed; undefined if it lacks the whole bucket. */
  readonly missed: readonly number[] | undefined;
}

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

/**
 * Number of results of {@link fillGaps} that are kept. Nodes whose own endpoints changed lack other items than the
 * rest.
 */
const maxFillings = 8;

/** Gaps that one step fills: 2 to 5 ms if their buckets were not compressed before. */
const gapsPerStep = 8;

/**
 * Returns the operations that fill the gaps of a subscriber: all Services first, because an endpoint needs its Service.
 * Most subscribers that resume at the same time lack the same items, so the last results are kept for them.
 *
 * Yields {@link pause} between the steps of a new result: in one piece, 500 buckets took up to 330 ms.
 */
export function* fillGaps(indexes: readonly BucketIndex[], gaps: readonly BucketGap[]): Generator<Frame, Frame> {
  const asked = gaps.map(({ number, missed }) => `${number}:${missed?.join("+") ?? ""}`);
  const key = [...indexes.map(({ id }) => id), ...asked].join();
  const fillings = indexes.at(-1)?.fillings ?? new Map<string, Frame>();
  const held = fillings.get(key);
  if (held !== undefined) return held;
  const services: Frame[] = [];
  const endpoints: Frame[] = [];
  const servicePuts: Frame[] = [];
  const others: Frame[] = [];
  for (const [index, gap] of gaps.entries()) {
    if (index > 0 && index % gapsPerStep === 0) yield pause;
    const whole = gap.missed === undefined ? indexes.map((one) => one.bucket(gap.number)) : [];
    for (const bucket of whole) {
      services.push(...bucket.serviceFrames);
      endpoints.push(...bucket.endpointFrames);
    }
    for (const { item, frame } of changesOf(indexes, gap)) {
      (item !== undefined && isService(item) ? servicePuts : others).push(frame);
    }
  }
  const changes: Frame[] = [];
  // Always as a batch, in which a Delete may name an item that the subscriber never had.
  for (const frame of packInSteps(others)) {
    changes.push(frame);
    yield pause;
  }
  const filling = Buffer.concat([...services, ...servicePuts, ...endpoints, ...changes]);
  const [oldest] = fillings.keys();
  // Another subscriber with the same gaps may have been served between the steps.
  if (oldest !== undefined && fillings.size === maxFillings && !fillings.has(key)) fillings.delete(oldest);
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
