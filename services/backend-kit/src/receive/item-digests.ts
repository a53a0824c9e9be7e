import { getOrMake } from "@kpng/model/collections.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import { BucketDigests, hasBucket, itemBucket, itemDigest } from "@kpng/model/wire/digest.ts";

/** Effect of an operation of the stream on the digests; the item itself is not kept. */
type StagedOp =
  | { readonly kind: "reset" }
  | { readonly kind: "keep"; readonly buckets: Uint8Array }
  | { readonly kind: "put"; readonly set: SetName; readonly path: string; readonly item: ItemRecord }
  | { readonly kind: "delete"; readonly set: SetName; readonly path: string };

/**
 * Hash of an item in the lower 64 bits, and its estimated memory, in bytes, in the bits above. As one number, a record
 * takes 24 bytes.
 */
type ItemRecord = bigint;

/**
 * Digests of the items that earlier batches contained. An item is one Service, endpoint or node.
 *
 * `followView` keeps one instance for all its streams. A new stream starts with these digests (`WatchReq.HeldDigests`),
 * so that the watcher sends only the items that differ, and after each batch `watchBatches` compares them with the
 * watcher's digest.
 *
 * Operations are staged until their batch is complete, so a stream that breaks inside a batch changes nothing.
 *
 * *Bound:* path and hash of each item in the view, about 150 bytes per item.
 */
export class ItemDigests {
  /** Items, keyed by Set (the kind of item) and path. */
  readonly #items = new Map<SetName, Map<string, ItemRecord>>();
  #digests = new BucketDigests();
  #digest = 0n;
  #bytes = 0;
  #staged: StagedOp[] = [];

  /** Digests of all buckets for the first request of a stream; undefined if there are no items. */
  get buckets(): Uint8Array | undefined {
    return this.#items.size === 0 ? undefined : this.#digests.toBytes();
  }

  /** Digest of the view: the exclusive or of all item hashes, as specified for EmptyOp.Digest in the proto file. */
  get view(): bigint {
    return this.#digest;
  }

  /** Estimated memory of all items, in bytes; see {@link stage}. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Forgets everything, so that the next stream brings the whole view. */
  clear(): void {
    this.#reset();
    this.#staged = [];
  }

  /** True if the current batch keeps every item and neither puts nor deletes any. */
  get isUnchanged(): boolean {
    return this.#staged.every((op) => op.kind === "keep" && this.#outside(op.buckets).length === 0);
  }

  /** Discards the operations of an incomplete batch. */
  discard(): void {
    this.#staged = [];
  }

  /** Adds an operation to the current batch. `opBytes` is the estimated memory of its item. */
  stage({ Op: op }: OpItem, opBytes = 0): void {
    switch (op.case) {
      case "Reset":
        this.#staged = [{ kind: "reset" }];
        break;
      case "Keep":
        this.#staged.push({ kind: "keep", buckets: op.value.Buckets });
        break;
      case "Set": {
        const { Ref: ref, Bytes: bytes } = op.value;
        if (ref === undefined) break;
        const { Set: set, Path: path } = ref;
        const item = (BigInt(opBytes) << 64n) | itemDigest(set, path, bytes).hash;
        this.#staged.push({ kind: "put", set, path, item });
        break;
      }
      case "Delete":
        this.#staged.push({ kind: "delete", set: op.value.Set, path: op.value.Path });
        break;
      case "Batch":
      case "Sync":
      case undefined:
        break;
      default:
        assertNever(op);
    }
  }

  /**
   * Applies the batch. Returns the items that the batch deletes without a Delete operation: the items in buckets that
   * Keep does not name, unless the batch puts them again. Endpoints come before Services.
   */
  commit(): readonly Ref[] {
    const staged = this.#staged;
    this.#staged = [];
    const dropped = new Map<SetName, Set<string>>();
    for (const op of staged) {
      switch (op.kind) {
        case "reset":
          this.#reset();
          break;
        case "keep":
          for (const { set, path } of this.#outside(op.buckets)) {
            this.#remove(set, path);
            getOrMake(dropped, set, () => new Set()).add(path);
          }
          break;
        case "put":
          this.#put(op.set, op.path, op.item);
          dropped.get(op.set)?.delete(op.path);
          break;
        case "delete":
          this.#remove(op.set, op.path);
          break;
        default:
          assertNever(op);
      }
    }
    return [...dropped]
      .sort(([a], [b]) => rank(a) - rank(b))
      .flatMap(([set, paths]) => [...paths].map((path): Ref => ({ $typeName: "localv1.Ref", Set: set, Path: path })));
  }

  #reset(): void {
    this.#items.clear();
    this.#digests = new BucketDigests();
    this.#digest = 0n;
    this.#bytes = 0;
  }

  #outside(buckets: Uint8Array): readonly { readonly set: SetName; readonly path: string }[] {
    return [...this.#items].flatMap(([set, items]) =>
      [...items.keys()].filter((path) => !hasBucket(buckets, itemBucket(set, path))).map((path) => ({ set, path })),
    );
  }

  #put(set: SetName, path: string, item: ItemRecord): void {
    this.#remove(set, path);
    getOrMake(this.#items, set, () => new Map()).set(path, item);
    this.#toggle(set, path, item, 1);
  }

  #remove(set: SetName, path: string): void {
    const items = this.#items.get(set);
    const item = items?.get(path);
    if (items === undefined || item === undefined) return;
    items.delete(path);
    if (items.size === 0) this.#items.delete(set);
    this.#toggle(set, path, item, -1);
  }

  #toggle(set: SetName, path: string, item: ItemRecord, sign: 1 | -1): void {
    const hash = BigInt.asUintN(64, item);
    this.#digest ^= hash;
    this.#bytes += sign * Number(item >> 64n);
    this.#digests.toggle({ bucket: itemBucket(set, path), hash });
  }
}

/** Order of deletions by kind of item: endpoints before Services, as in a batch of the watcher. */
function rank(set: SetName): number {
  return set === SetName.EndpointsSet ? 0 : 1;
}
