import type { Frame } from "../../items/frames.ts";
import type { Item } from "../../items/item.ts";
import { serviceSection } from "../../items/node-view-items.ts";
import { packFrames } from "./packed-frames.ts";

/**
 * The items of a class of nodes whose paths have the same hash modulo the number of buckets, and their last changes. It
 * is immutable: `BucketIndex` makes another bucket for the next snapshot. Separate from `BucketIndex`, which contains
 * all buckets.
 *
 * A subscriber that holds an earlier state of the bucket gets the changes since then instead of the bucket. *Bound:*
 * the keys of {@link maxPastItems} items for the changes.
 */
export class Bucket {
  static readonly empty = new Bucket([], []);

  /** In no particular order. */
  readonly items: readonly Item[];
  /** The newest first. */
  readonly #past: readonly PastChange[];
  #endpoints: readonly Frame[] | undefined;
  #countByDigest: ReadonlyMap<bigint, number> | undefined;

  private constructor(items: readonly Item[], past: readonly PastChange[]) {
    this.items = items;
    this.#past = past;
  }

  /** Returns the bucket without the items at some paths, and with others. `digest` is that of this bucket. */
  with(gone: ReadonlyMap<string, ItemKey>, added: readonly Item[], digest: bigint): Bucket {
    const kept = gone.size === 0 ? this.items : this.items.filter(({ path }) => !gone.has(path));
    const keys = new Map(gone);
    for (const { section, path } of added) keys.set(path, { section, path });
    return new Bucket([...kept, ...added], limited([{ digest, items: [...keys.values()] }, ...this.#past]));
  }

  /** The digests of the bucket before its last change, before the change before it, and so on, as far as known. */
  get pastDigests(): readonly bigint[] {
    return this.#past.map(({ digest }) => digest);
  }

  /** Returns the number of changes since the bucket last had a digest; undefined if it is none of the past ones. */
  changesSince(digest: bigint): number | undefined {
    // The newest last, so that it replaces an older equal one.
    this.#countByDigest ??= new Map(this.#past.map((change, index) => [change.digest, index + 1] as const).reverse());
    return this.#countByDigest.get(digest);
  }

  /** The items that the last `count` changes put or removed. */
  lastChanged(count: number): readonly ItemKey[] {
    return this.#past.slice(0, count).flatMap(({ items }) => items);
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

/** Names an item without its bytes. */
export type ItemKey = Pick<Item, "section" | "path">;

/** A change of a bucket. */
interface PastChange {
  /** Digest of the bucket before the change. */
  readonly digest: bigint;
  /** The items that it put or removed. */
  readonly items: readonly ItemKey[];
}

/** Maximum number of items in the changes that a bucket remembers. */
const maxPastItems = 16;

/** Returns the newest changes, without those that would exceed the limit. */
function limited(changes: readonly PastChange[]): readonly PastChange[] {
  let count = 0;
  const tooMany = changes.findIndex(({ items }) => {
    count += items.length;
    return count > maxPastItems;
  });
  return tooMany === -1 ? changes : changes.slice(0, tooMany);
}

/** True for a Service. `fillGaps` and `Bucket` send Services before the endpoints that need them. */
export function isService({ section }: Item): boolean {
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
