import { assertNever } from "@kpng/model/assert-never.ts";
import { type OpItem, type Ref, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { BucketDigests, hasBucket, type ItemDigest, itemDigest } from "@kpng/model/wire/item-digest.ts";

/**
 * What has been received of a view, as digests, so that the next stream need only bring what differs.
 *
 * Operations are staged until their batch is complete: a stream that breaks inside one changes nothing here.
 *
 * *Bound:* one entry for each item of the view, about 200 bytes.
 */
export class HeldItems {
  #items = new Map<string, ItemDigest>();
  #digests = new BucketDigests();
  #staged: OpItem[] = [];

  /** For the first request of a stream; undefined if nothing is held. */
  get digests(): Uint8Array | undefined {
    return this.#items.size === 0 ? undefined : this.#digests.toBytes();
  }

  /** Forgets everything: what is held elsewhere can no longer be trusted to be this. */
  clear(): void {
    this.#items = new Map();
    this.#digests = new BucketDigests();
    this.#staged = [];
  }

  /** Forgets a batch that was not completed. */
  discard(): void {
    this.#staged = [];
  }

  stage(op: OpItem): void {
    this.#staged.push(op);
  }

  /**
   * Applies the batch and returns the items that went without a Delete, because Keep did not name their bucket and
   * nothing put them again: endpoints first.
   */
  commit(): readonly Ref[] {
    const forgotten = new Map<string, Ref>();
    for (const { Op: op } of this.#staged) {
      switch (op.case) {
        case "Reset":
          this.#items = new Map();
          this.#digests = new BucketDigests();
          break;
        case "Keep":
          for (const [key, { bucket }] of this.#items) {
            if (!hasBucket(op.value.Buckets, bucket)) forgotten.set(key, refOf(key));
          }
          for (const key of forgotten.keys()) this.#remove(key);
          break;
        case "Set":
          if (op.value.Ref !== undefined) forgotten.delete(this.#put(op.value.Ref, op.value.Bytes));
          break;
        case "Delete":
          this.#remove(keyOf(op.value));
          break;
        case "Batch":
        case "Sync":
        case undefined:
          break;
        default:
          assertNever(op);
      }
    }
    this.#staged = [];
    return [...forgotten.values()].sort((a, b) => rank(a) - rank(b));
  }

  #put(ref: Ref, bytes: Uint8Array): string {
    const key = keyOf(ref);
    this.#remove(key);
    const digest = itemDigest(ref.Set, ref.Path, bytes);
    this.#items.set(key, digest);
    this.#digests.toggle(digest);
    return key;
  }

  #remove(key: string): void {
    const digest = this.#items.get(key);
    if (digest === undefined) return;
    this.#items.delete(key);
    this.#digests.toggle(digest);
  }
}

function keyOf(ref: Ref): string {
  return `${ref.Set} ${ref.Path}`;
}

function refOf(key: string): Ref {
  const space = key.indexOf(" ");
  return { $typeName: "localv1.Ref", Set: Number(key.slice(0, space)) as SetName, Path: key.slice(space + 1) };
}

/** A Service goes after its endpoints. */
function rank(ref: Ref): number {
  return ref.Set === SetName.EndpointsSet ? 0 : 1;
}
