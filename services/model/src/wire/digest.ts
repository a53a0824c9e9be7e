import createHasher from "xxhash-wasm";
import type { Set as SetName } from "../gen/localv1/api_pb.ts";

const { h64Raw } = await createHasher();

/** Returns the XXH64 hash with seed 0, as KPNG does for endpoint paths and Hash fields. Source: KPNG `serde.go`. */
export function hashBytes(bytes: Uint8Array): bigint {
  return h64Raw(bytes);
}

/** Formats a hash in lower-case hex without leading zeros. */
export function formatHash(hash: bigint): string {
  return hash.toString(16);
}

const encoder = new TextEncoder();

/** Returns the hash of a string's UTF-8 bytes; see {@link hashBytes}. */
export function hashText(text: string): bigint {
  return hashBytes(encoder.encode(text));
}

/**
 * Number of buckets over which the items of a view are distributed; see WatchReq.HeldDigests in the proto file. When a
 * stream resumes, the subscriber sends one digest per bucket, and the watcher sends only the buckets that differ. Both
 * sides must use the same number: another one has other lengths and other buckets on the wire.
 */
export const bucketCount = 1024;

const bucketMask = BigInt(bucketCount - 1);

const bytesPerDigest = 8;

/** Hash of an item, and the bucket whose digest includes it. */
export interface ItemDigest {
  /** 0 to bucketCount − 1; depends only on the item's Set and path. */
  readonly bucket: number;
  readonly hash: bigint;
}

/** Buffer for the bytes to hash, reused for all items. It grows to fit the longest item and never shrinks. */
let scratch = new Uint8Array(4_096);

/** Returns the digest of an item; see WatchReq.HeldDigests in the proto file. */
export function itemDigest(set: SetName, path: string, bytes: Uint8Array): ItemDigest {
  const keyLength = writeKey(set, path, bytes.length + 1);
  const bucket = bucketOfBytes(keyLength);
  scratch[keyLength] = 0;
  scratch.set(bytes, keyLength + 1);
  return { bucket, hash: hashBytes(scratch.subarray(0, keyLength + 1 + bytes.length)) };
}

/** Returns the bucket of an item. */
export function itemBucket(set: SetName, path: string): number {
  return bucketOfBytes(writeKey(set, path, 0));
}

/** Writes the key of an item to the buffer, with space for `spareBytes` after it. Returns the length of the key. */
function writeKey(set: SetName, path: string, spareBytes: number): number {
  const key = `${set} ${path}`;
  // A UTF-16 code unit takes at most three bytes in UTF-8.
  const maxLength = key.length * 3 + spareBytes;
  if (scratch.length < maxLength) scratch = new Uint8Array(maxLength * 2);
  return encoder.encodeInto(key, scratch).written;
}

function bucketOfBytes(keyLength: number): number {
  return Number(hashBytes(scratch.subarray(0, keyLength)) & bucketMask);
}

/** Digests of a set of items, one per bucket. Equal sets have equal digests, whatever the order of insertion. */
export class BucketDigests {
  readonly #digests: BigUint64Array;
  /** The same memory as 32-bit halves, which can be read without creating a bigint. */
  readonly #halves: Uint32Array;

  constructor(digests: BigUint64Array = new BigUint64Array(bucketCount)) {
    this.#digests = digests;
    this.#halves = new Uint32Array(digests.buffer, digests.byteOffset, 2 * bucketCount);
  }

  /** Decodes the format of WatchReq.HeldDigests; undefined if the length is wrong. */
  static fromBytes(bytes: Uint8Array): BucketDigests | undefined {
    if (bytes.length !== bucketCount * bytesPerDigest) return undefined;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const digests = new BucketDigests();
    for (let bucket = 0; bucket < bucketCount; bucket += 1) {
      digests.#digests[bucket] = view.getBigUint64(bucket * bytesPerDigest, true);
    }
    return digests;
  }

  /** Encodes the digests in the format of WatchReq.HeldDigests. */
  toBytes(): Uint8Array {
    const bytes = new Uint8Array(bucketCount * bytesPerDigest);
    const view = new DataView(bytes.buffer);
    for (const [bucket, digest] of this.#digests.entries()) view.setBigUint64(bucket * bytesPerDigest, digest, true);
    return bytes;
  }

  at(bucket: number): bigint {
    return this.#digests[bucket] ?? 0n;
  }

  copy(): BucketDigests {
    return new BucketDigests(this.#digests.slice());
  }

  /** Adds an item that is not in the set, or removes one that is. */
  toggle({ bucket, hash }: ItemDigest): void {
    this.#digests[bucket] = (this.#digests[bucket] ?? 0n) ^ hash;
  }

  /** Returns the buckets in which the sets have different items, in ascending order. */
  differing(other: BucketDigests): readonly number[] {
    const buckets: number[] = [];
    for (let bucket = 0; bucket < bucketCount; bucket += 1) {
      const [low, high] = [2 * bucket, 2 * bucket + 1];
      if (this.#halves[low] !== other.#halves[low] || this.#halves[high] !== other.#halves[high]) buckets.push(bucket);
    }
    return buckets;
  }
}

/** Returns a set of buckets in the format of KeepOp.Buckets. */
export function encodeBuckets(has: (bucket: number) => boolean): Uint8Array {
  const bits = new Uint8Array(bucketCount / 8);
  for (let bucket = 0; bucket < bucketCount; bucket += 1) {
    if (has(bucket)) bits[bucket >> 3] = (bits[bucket >> 3] ?? 0) | (1 << (bucket & 7));
  }
  return bits;
}

/** True if a set in the format of KeepOp.Buckets contains the bucket. Missing bits are 0. */
export function hasBucket(bits: Uint8Array, bucket: number): boolean {
  return ((bits[bucket >> 3] ?? 0) & (1 << (bucket & 7))) !== 0;
}
