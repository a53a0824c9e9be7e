import { getOrMake } from "@kpng/model/get-or-make.ts";
import { BucketDigests, bucketCount } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { digestOf } from "../../items/item-digests.ts";
import { serviceSection } from "../../items/node-view-items.ts";
import { perClass } from "./class-values.ts";
import { packFrames } from "./packed-frames.ts";

/**
 * The items that a class of nodes shares, by the bucket of their path, and the digest of each bucket. When a subscriber
 * resumes, the digests show which buckets it lacks, and the buckets contain what it is sent.
 *
 * All snapshots in which no item of a bucket changes share the bucket and its encoded frames. *Bound:* for each part
 * (see perClass) 16 KiB, a reference to each item, and two copies of the compressed bytes of the buckets that were
 * requested: in the bucket, and in the last result of `join`.
 *
 * `resumeView` gets the index of a class from `bucketIndexes` below. Separate from `resumeView` because the index
 * belongs to a class and lives from snapshot to snapshot; `resumeView` answers one subscriber.
 */
export class BucketIndex {
  readonly digests: BucketDigests;
  readonly #buckets: readonly Bucket[];
  #joined: JoinedBuckets | undefined;

  private constructor(digests: BucketDigests, buckets: readonly Bucket[]) {
    this.digests = digests;
    this.#buckets = buckets;
  }

  static empty(): BucketIndex {
    return new BucketIndex(new BucketDigests(), new Array<Bucket>(bucketCount).fill(new Bucket([])));
  }

  bucket(number: number): Bucket {
    return this.#buckets[number] ?? new Bucket([]);
  }

  /**
   * Returns puts of all items in some buckets. Most subscribers that resume at the same time lack the same buckets, so
   * the last result is kept for them.
   */
  join(numbers: readonly number[]): JoinedBuckets {
    const held = this.#joined;
    const isSame =
      held?.numbers.length === numbers.length && numbers.every((one, index) => one === held.numbers[index]);
    if (held !== undefined && isSame) return held;
    const buckets = numbers.map((number) => this.bucket(number));
    const services = Buffer.concat(buckets.flatMap(({ serviceFrames }) => serviceFrames));
    const endpoints = Buffer.concat(buckets.flatMap(({ endpointFrames }) => endpointFrames));
    this.#joined = { numbers, services, endpoints };
    return this.#joined;
  }

  /** *Cost:* 16 KiB, and the buckets of the items. */
  with(removed: readonly Item[], added: readonly Item[]): BucketIndex {
    const digests = this.digests.copy();
    const edits = new Map<number, { readonly gone: Set<string>; readonly added: Item[] }>();
    const editOf = (item: Item) => {
      const digest = digestOf(item);
      digests.toggle(digest);
      return getOrMake(edits, digest.bucket, () => ({ gone: new Set<string>(), added: [] }));
    };
    // By path: an item with equal bytes may be another object by now.
    for (const item of removed) editOf(item).gone.add(item.path);
    for (const item of added) editOf(item).added.push(item);
    const buckets = this.#buckets.slice();
    for (const [number, edit] of edits) {
      const { items } = this.bucket(number);
      const kept = edit.gone.size === 0 ? items : items.filter(({ path }) => !edit.gone.has(path));
      buckets[number] = new Bucket([...kept, ...edit.added]);
    }
    return new BucketIndex(digests, buckets);
  }
}

/** Puts of all items in some buckets. Services come first: an endpoint needs its Service. */
interface JoinedBuckets {
  readonly numbers: readonly number[];
  readonly services: Frame;
  /** Compressed. */
  readonly endpoints: Frame;
}

/** Returns the bucket index of a class, in one or two parts. See perClass for the cost. */
export const bucketIndexes = perClass(
  () => BucketIndex.empty(),
  (index, removed, added) => index.with(removed, added),
);

/** The items whose paths have the same hash modulo the number of buckets. */
class Bucket {
  /** In no particular order. */
  readonly items: readonly Item[];
  #endpoints: readonly Frame[] | undefined;

  constructor(items: readonly Item[]) {
    this.items = items;
  }

  get serviceFrames(): readonly Frame[] {
    return this.items.filter(isService).map(({ frame }) => frame);
  }

  /** Puts of the endpoints, compressed unless there are only a few. */
  get endpointFrames(): readonly Frame[] {
    this.#endpoints ??= shorter(this.items.filter((item) => !isService(item)).map(({ frame }) => frame));
    return this.#endpoints;
  }
}

function isService({ section }: Item): boolean {
  return section === serviceSection;
}

/** Returns the frames, or the same operations compressed if that is shorter. */
function shorter(frames: readonly Frame[]): readonly Frame[] {
  const packed = packFrames(frames);
  return lengthOf(packed) < lengthOf(frames) ? packed : frames;
}

function lengthOf(frames: readonly Frame[]): number {
  return frames.reduce((sum, { length }) => sum + length, 0);
}
