import { getOrMake } from "@kpng/model/collections.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { assertNever } from "@kpng/model/narrowing.ts";
import { BucketDigests, hasBucket, type ItemDigest, itemBucket, itemDigest } from "@kpng/model/wire/digest.ts";

/**
 * Hash of an item in the lower 64 bits, and its estimated memory, in bytes, in the bits above. As one number, a record
 * takes 32 bytes.
 */
type ItemRecord = bigint;

/** Set (the kind of item) and path of an item. *Shape:* `default/web/web-1` is folder `default/web` and name `web-1`. */
interface Place {
  readonly set: SetName;
  /** "" if the path has no slash. */
  readonly folder: string;
  readonly name: string;
}

/** `name` is the last part of the path if the caller has it already: then both share one string. */
function placeOf(set: SetName, path: string, name?: string): Place {
  const slash = path.lastIndexOf("/");
  return { set, folder: path.slice(0, Math.max(0, slash)), name: name ?? path.slice(slash + 1) };
}

function pathOf({ folder, name }: Place): string {
  return folder === "" ? name : `${folder}/${name}`;
}

/** Operation of a batch that changes one item. */
type ItemOp =
  | { readonly kind: "put"; readonly at: Place; readonly digest: ItemDigest; readonly bytes: number }
  | { readonly kind: "delete"; readonly at: Place };

type StagedOp = ItemOp | { readonly kind: "keep"; readonly buckets: Uint8Array };

/**
 * Digests of the items that earlier batches contained. An item is one Service, endpoint or node; the item itself is not
 * kept.
 *
 * `followView` keeps one instance for all its streams. A new stream starts with these digests (`WatchReq.HeldDigests`),
 * so that the watcher sends only the items that differ, and after each batch `watchBatches` compares them with the
 * watcher's digest.
 *
 * Operations are staged until their batch is complete, so a stream that breaks inside a batch changes nothing.
 */
export class ItemDigests {
  #held = new HeldItems();
  /** The items of the current batch if it began with Reset: a whole view is not staged, to take less memory. */
  #whole: HeldItems | undefined;
  #staged: StagedOp[] = [];

  /** Digests of all buckets for the first request of a stream; undefined if there are no items. */
  get buckets(): Uint8Array | undefined {
    return this.#held.buckets;
  }

  /** Digest of the view: the exclusive or of all item hashes, as specified for EmptyOp.Digest in the proto file. */
  get view(): bigint {
    return this.#held.digest;
  }

  /** Estimated memory of all items, in bytes; see {@link stage}. */
  get bytes(): number {
    return this.#held.bytes;
  }

  /** Forgets all items, so that the next stream brings the whole view. */
  clear(): void {
    this.#held = new HeldItems();
  }

  /** True if the current batch keeps every item and neither puts nor deletes any. */
  get isUnchanged(): boolean {
    const isKept = (op: StagedOp): boolean => op.kind === "keep" && this.#held.outside(op.buckets).length === 0;
    return this.#whole === undefined && this.#staged.every(isKept);
  }

  /** Discards the operations of an incomplete batch. */
  discard(): void {
    this.#whole = undefined;
    this.#staged = [];
  }

  /**
   * Adds an operation to the current batch. `opBytes` is the estimated memory of its item, and `name` the last part of
   * its path.
   */
  stage({ Op: op }: OpItem, opBytes = 0, name?: string): void {
    switch (op.case) {
      case "Reset":
        this.#whole = new HeldItems();
        this.#staged = [];
        break;
      case "Keep":
        this.#staged.push({ kind: "keep", buckets: op.value.Buckets });
        break;
      case "Set": {
        const { Ref: ref, Bytes: bytes } = op.value;
        if (ref === undefined) break;
        const digest = itemDigest(ref.Set, ref.Path, bytes);
        this.#change({ kind: "put", at: placeOf(ref.Set, ref.Path, name), digest, bytes: opBytes });
        break;
      }
      case "Delete":
        this.#change({ kind: "delete", at: placeOf(op.value.Set, op.value.Path) });
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
    const [staged, held] = [this.#staged, this.#whole ?? this.#held];
    this.#held = held;
    this.discard();
    const dropped = new Map<string, Place>();
    for (const op of staged) {
      if (op.kind === "keep") {
        for (const place of held.outside(op.buckets)) {
          held.delete(place);
          dropped.set(`${place.set} ${pathOf(place)}`, place);
        }
      } else {
        apply(op, held);
        if (op.kind === "put") dropped.delete(`${op.at.set} ${pathOf(op.at)}`);
      }
    }
    return [...dropped.values()]
      .sort((a, b) => rank(a.set) - rank(b.set))
      .map((place): Ref => ({ $typeName: "localv1.Ref", Set: place.set, Path: pathOf(place) }));
  }

  #change(op: ItemOp): void {
    if (this.#whole === undefined) this.#staged.push(op);
    else apply(op, this.#whole);
  }
}

function apply(op: ItemOp, to: HeldItems): void {
  if (op.kind === "put") to.put(op.at, op.digest, op.bytes);
  else to.delete(op.at);
}

/**
 * Names and hashes of the items of a view, and their digests.
 *
 * *Bound:* about 80 bytes per item in the view; its endpoints share their names' strings.
 */
class HeldItems {
  /** Items by Set, folder and name. The folder of an endpoint is its Service, so no endpoint needs a path of its own. */
  readonly #items = new Map<SetName, Map<string, Map<string, ItemRecord>>>();
  readonly #digests = new BucketDigests();
  digest = 0n;
  bytes = 0;

  get buckets(): Uint8Array | undefined {
    return this.#items.size === 0 ? undefined : this.#digests.toBytes();
  }

  outside(buckets: Uint8Array): readonly Place[] {
    const outside: Place[] = [];
    for (const [set, folders] of this.#items) {
      for (const [folder, items] of folders) {
        for (const name of items.keys()) {
          const place = { set, folder, name };
          if (!hasBucket(buckets, itemBucket(set, pathOf(place)))) outside.push(place);
        }
      }
    }
    return outside;
  }

  put(place: Place, digest: ItemDigest, bytes: number): void {
    this.delete(place);
    const folders = getOrMake(this.#items, place.set, () => new Map<string, Map<string, ItemRecord>>());
    getOrMake(folders, place.folder, () => new Map()).set(place.name, (BigInt(bytes) << 64n) | digest.hash);
    this.#toggle(digest, bytes);
  }

  delete(place: Place): void {
    const { set, folder, name } = place;
    const folders = this.#items.get(set);
    const items = folders?.get(folder);
    const item = items?.get(name);
    if (folders === undefined || items === undefined || item === undefined) return;
    items.delete(name);
    if (items.size === 0) folders.delete(folder);
    if (folders.size === 0) this.#items.delete(set);
    const bucket = itemBucket(set, pathOf(place));
    this.#toggle({ bucket, hash: BigInt.asUintN(64, item) }, -Number(item >> 64n));
  }

  #toggle(digest: ItemDigest, bytes: number): void {
    this.digest ^= digest.hash;
    this.bytes += bytes;
    this.#digests.toggle(digest);
  }
}

/** Order of deletions by kind of item: endpoints before Services, as in a batch of the watcher. */
function rank(set: SetName): number {
  return set === SetName.EndpointsSet ? 0 : 1;
}
