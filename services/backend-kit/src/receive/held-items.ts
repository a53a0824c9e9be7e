import { assertNever } from "@kpng/model/assert-never.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { getOrMake } from "@kpng/model/get-or-make.ts";
import { BucketDigests, hasBucket, itemBucket, itemDigest } from "@kpng/model/wire/item-digest.ts";

/** What an operation does to the digests; the item itself is not kept. */
type StagedOp =
  | { readonly kind: "reset" }
  | { readonly kind: "keep"; readonly buckets: Uint8Array }
  | { readonly kind: "put"; readonly set: SetName; readonly path: string; readonly hash: bigint }
  | { readonly kind: "delete"; readonly set: SetName; readonly path: string };

/**
 * What has been received of a view, as digests, so that the next stream need only bring what differs.
 *
 * Operations are staged until their batch is complete: a stream that breaks inside one changes nothing here.
 *
 * *Bound:* path and hash of each item of the view, about 150 bytes.
 */
export class HeldItems {
  /** The hash of each item by its path, apart for each Set. */
  readonly #items = new Map<SetName, Map<string, bigint>>();
  #digests = new BucketDigests();
  #digest = 0n;
  #staged: StagedOp[] = [];

  /** For the first request of a stream; undefined if nothing is held. */
  get digests(): Uint8Array | undefined {
    return this.#items.size === 0 ? undefined : this.#digests.toBytes();
  }

  /** The exclusive or of the digests of all items; see EmptyOp.Digest. */
  get digest(): bigint {
    return this.#digest;
  }

  /** Forgets everything: what is held elsewhere can no longer be trusted to be this. */
  clear(): void {
    this.#reset();
    this.#staged = [];
  }

  /** Forgets a batch that was not completed. */
  discard(): void {
    this.#staged = [];
  }

  stage({ Op: op }: OpItem): void {
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
        this.#staged.push({ kind: "put", set, path, hash: itemDigest(set, path, bytes).hash });
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
   * Applies the batch and returns the items that went without a Delete, because Keep did not name their bucket and
   * nothing put them again: endpoints first.
   */
  commit(): readonly Ref[] {
    const staged = this.#staged;
    this.#staged = [];
    const forgotten = new Map<SetName, Set<string>>();
    for (const op of staged) {
      switch (op.kind) {
        case "reset":
          this.#reset();
          break;
        case "keep":
          for (const { set, path } of this.#outside(op.buckets)) {
            this.#remove(set, path);
            getOrMake(forgotten, set, () => new Set()).add(path);
          }
          break;
        case "put":
          this.#put(op.set, op.path, op.hash);
          forgotten.get(op.set)?.delete(op.path);
          break;
        case "delete":
          this.#remove(op.set, op.path);
          break;
        default:
          assertNever(op);
      }
    }
    // A Service goes after its endpoints.
    return [...forgotten]
      .sort(([a], [b]) => rank(a) - rank(b))
      .flatMap(([set, paths]) => [...paths].map((path): Ref => ({ $typeName: "localv1.Ref", Set: set, Path: path })));
  }

  #reset(): void {
    this.#items.clear();
    this.#digests = new BucketDigests();
    this.#digest = 0n;
  }

  #outside(buckets: Uint8Array): readonly { readonly set: SetName; readonly path: string }[] {
    return [...this.#items].flatMap(([set, items]) =>
      [...items.keys()].filter((path) => !hasBucket(buckets, itemBucket(set, path))).map((path) => ({ set, path })),
    );
  }

  #put(set: SetName, path: string, hash: bigint): void {
    this.#remove(set, path);
    getOrMake(this.#items, set, () => new Map()).set(path, hash);
    this.#digest ^= hash;
    this.#digests.toggle({ bucket: itemBucket(set, path), hash });
  }

  #remove(set: SetName, path: string): void {
    const items = this.#items.get(set);
    const hash = items?.get(path);
    if (items === undefined || hash === undefined) return;
    items.delete(path);
    this.#digest ^= hash;
    if (items.size === 0) this.#items.delete(set);
    this.#digests.toggle({ bucket: itemBucket(set, path), hash });
  }
}

function rank(set: SetName): number {
  return set === SetName.EndpointsSet ? 0 : 1;
}
