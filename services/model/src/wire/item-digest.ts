import type { Set as SetName } from "../gen/localv1/api_pb.ts";
import { hashBytes } from "./hash.ts";

/** How many buckets the items of a view are spread over; the proto file gives the number. */
export const bucketCount = 1024;

const bucketMask = BigInt(bucketCount - 1);

const bytesPerDigest = 8;

/** What stands for an item in the digest of its bucket. */
export interface ItemDigest {
  /** 0 to bucketCount − 1; depends on the item's Set and path alone. */
  readonly bucket: number;
  readonly hash: bigint;
}

const encoder = new TextEncoder();

/** Where the bytes are put together that are hashed: the longest so far is kept, for there are very many items. */
let scratch = new Uint8Array(4_096);

/** See WatchReq.HeldDigests in the proto file. */
export function itemDigest(set: SetName, path: string, bytes: Uint8Array): ItemDigest {
  const keyLength = writeKey(set, path, bytes.length + 1);
  const bucket = bucketOfBytes(keyLength);
  scratch[keyLength] = 0;
  scratch.set(bytes, keyLength + 1);
  return { bucket, hash: hashBytes(scratch.subarray(0, keyLength + 1 + bytes.length)) };
}

/** The bucket of an item. */
export function itemBucket(set: SetName, path: string): number {
  return bucketOfBytes(writeKey(set, path, 0));
}

/** Writes what tells an item from others, and leaves `room` bytes after it; returns its length. */
function writeKey(set: SetName, path: string, room: number): number {
  const key = `${set} ${path}`;
  // A UTF-16 unit becomes three bytes at most.
  const most = key.length * 3 + room;
  if (scratch.length < most) scratch = new Uint8Array(most * 2);
  return encoder.encodeInto(key, scratch).written;
}

function bucketOfBytes(keyLength: number): number {
  return Number(hashBytes(scratch.subarray(0, keyLength)) & bucketMask);
}

/** One digest for each bucket: equal for equal sets of items, in whatever order they came. */
export class BucketDigests {
  readonly #digests: BigUint64Array;

  constructor(digests: BigUint64Array = new BigUint64Array(bucketCount)) {
    this.#digests = digests;
  }

  /** Undefined if the bytes are no digests of ours. */
  static fromBytes(bytes: Uint8Array): BucketDigests | undefined {
    if (bytes.length !== bucketCount * bytesPerDigest) return undefined;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const digests = new BigUint64Array(bucketCount);
    for (let bucket = 0; bucket < bucketCount; bucket += 1) {
      digests[bucket] = view.getBigUint64(bucket * bytesPerDigest, true);
    }
    return new BucketDigests(digests);
  }

  toBytes(): Uint8Array {
    const bytes = new Uint8Array(bucketCount * bytesPerDigest);
    const view = new DataView(bytes.buffer);
    for (const [bucket, digest] of this.#digests.entries()) view.setBigUint64(bucket * bytesPerDigest, digest, true);
    return bytes;
  }

  copy(): BucketDigests {
    return new BucketDigests(this.#digests.slice());
  }

  /** Adds an item, or takes it out: the same operation. */
  toggle({ bucket, hash }: ItemDigest): void {
    this.#digests[bucket] = (this.#digests[bucket] ?? 0n) ^ hash;
  }

  isSameBucket(other: BucketDigests, bucket: number): boolean {
    return this.#digests[bucket] === other.#digests[bucket];
  }
}

/** A set of buckets as in KeepOp.Buckets. */
export function encodeBuckets(has: (bucket: number) => boolean): Uint8Array {
  const bits = new Uint8Array(bucketCount / 8);
  for (let bucket = 0; bucket < bucketCount; bucket += 1) {
    if (has(bucket)) bits[bucket >> 3] = (bits[bucket >> 3] ?? 0) | (1 << (bucket & 7));
  }
  return bits;
}

/** Bits that are not there are 0. */
export function hasBucket(bits: Uint8Array, bucket: number): boolean {
  return ((bits[bucket >> 3] ?? 0) & (1 << (bucket & 7))) !== 0;
}
