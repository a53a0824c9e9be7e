import type { Set as SetName } from "../gen/localv1/api_pb.ts";
import { hashBytes, hashText } from "./hash.ts";

/** How many buckets the items of a view are spread over; the proto file gives the number. */
export const bucketCount = 1024;

const bytesPerDigest = 8;

/** What stands for an item in the digest of its bucket. */
export interface ItemDigest {
  /** 0 to bucketCount − 1; depends on the item's Set and path alone. */
  readonly bucket: number;
  readonly hash: bigint;
}

const encoder = new TextEncoder();

/** See WatchReq.HeldDigests in the proto file. */
export function itemDigest(set: SetName, path: string, bytes: Uint8Array): ItemDigest {
  const key = `${set} ${path}`;
  const head = encoder.encode(`${key}\0`);
  const content = new Uint8Array(head.length + bytes.length);
  content.set(head);
  content.set(bytes, head.length);
  return { bucket: Number(hashText(key) % BigInt(bucketCount)), hash: hashBytes(content) };
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
