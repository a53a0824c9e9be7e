import { getOrMake } from "@kpng/model/get-or-make.ts";
import { BucketDigests, bucketCount } from "@kpng/model/wire/item-digest.ts";
import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { digestOf } from "../../items/item-digests.ts";
import { Bucket, type ItemKey } from "./bucket.ts";
import { perClass } from "./class-values.ts";

/**
 * The items (encoded Services and endpoints) that a class of nodes shares, by the bucket of their path, and the digest
 * of each bucket. When a subscriber resumes, the digests show which buckets it lacks, and the buckets contain what it
 * is sent.
 *
 * All snapshots in which no item of a bucket changes share the bucket and its encoded frames. *Bound:* for each part
 * (see `perClass`) 16 KiB, a reference to each item, the last changes of each `Bucket`, the compressed bytes of the
 * buckets that were requested, and the results of `fillGaps` that {@link fillings} contains.
 *
 * `resumeView` gets the index of a class from `bucketIndexes` below, and `prepareViews` computes it before the first
 * node connects. Separate from `bucket-gaps.ts`, which compares it with what one subscriber holds, because the index
 * belongs to a class and lives from snapshot to snapshot.
 */
export class BucketIndex {
  readonly digests: BucketDigests;
  readonly #buckets: readonly Bucket[];
  /** Different for each index. */
  readonly id = nextId();
  /** The last results of `fillGaps` for the class that this part completes, the oldest first. */
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

/** Returns the bucket index of a class, in one or two parts. See perClass for the cost. */
export const bucketIndexes = perClass(
  () => BucketIndex.empty(),
  (index, removed, added) => index.with(removed, added),
);
