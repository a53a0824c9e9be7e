import { quantile } from "./proc.ts";

/** Revision of a change, and its time by the machine's monotonic clock. */
export interface MadeChange {
  readonly revision: number;
  readonly atMs: number;
}

interface Latencies {
  /** 99 of 100 batches are younger, in milliseconds; NaN if there are none. */
  readonly p99: number;
  /** For each change, the time until the last stream had it. */
  readonly lastByChange: readonly number[];
}

/** Initial capacity of the log in entries; a full log doubles it. */
const firstCapacity = 1 << 16;

/** Log of received batches: stream, revision and time. A batch of any size takes a few bytes. */
export class BatchLog {
  #streams = new Uint32Array(firstCapacity);
  #revisions = new Float64Array(firstCapacity);
  #times = new Float64Array(firstCapacity);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(stream: number, revision: number, atMs: number): void {
    if (this.#length === this.#streams.length) this.#grow();
    this.#streams[this.#length] = stream;
    this.#revisions[this.#length] = revision;
    this.#times[this.#length] = atMs;
    this.#length += 1;
  }

  clear(): void {
    this.#length = 0;
  }

  /**
   * Returns the ages of batches, in milliseconds: from its oldest change until the whole batch was received.
   *
   * `sinceRevision` is the revision of all streams when the log was cleared.
   */
  latencies(changes: readonly MadeChange[], sinceRevision: number): Latencies {
    const ages: number[] = [];
    const lastByChange = changes.map(() => 0);
    const nextChange = new Map<number, number>();
    for (let entry = 0; entry < this.#length; entry += 1) {
      const stream = this.#streams[entry] ?? 0;
      const revision = this.#revisions[entry] ?? 0;
      const first = nextChange.get(stream) ?? 0;
      let next = first;
      if (revision > sinceRevision) {
        while (next < changes.length && (changes[next]?.revision ?? 0) <= revision) next += 1;
      }
      nextChange.set(stream, next);
      const atMs = this.#times[entry] ?? 0;
      for (let index = first; index < Math.min(next, changes.length); index += 1) {
        const age = atMs - (changes[index]?.atMs ?? atMs);
        if (index === first) ages.push(age);
        lastByChange[index] = Math.max(lastByChange[index] ?? 0, age);
      }
    }
    return { p99: quantile(ages, 0.99), lastByChange };
  }

  #grow(): void {
    const grown = <A extends Uint32Array | Float64Array>(old: A, fresh: A): A => {
      fresh.set(old);
      return fresh;
    };
    const capacity = this.#streams.length * 2;
    this.#streams = grown(this.#streams, new Uint32Array(capacity));
    this.#revisions = grown(this.#revisions, new Float64Array(capacity));
    this.#times = grown(this.#times, new Float64Array(capacity));
  }
}

const envelopeBytes = 5;

/** Tag of OpItem.Sync (field 1, length-delimited): only the operation that ends a batch starts with this byte. */
const syncTag = 0x0a;

/** Tag of EmptyOp.Revision (field 100, varint). */
const revisionTag = [0xa0, 0x06] as const;

/** Bytes kept of a message that arrives in several chunks: enough for a complete Sync. */
const keptBytes = 256;

/**
 * Finds the ends of batches in a stream of gRPC messages. It skips from message to message by their lengths and reads
 * only the first byte of each.
 */
export class BatchReader {
  readonly #onSync: (revision: number) => void;
  /** Start of an incomplete message. */
  #kept: Buffer | undefined;
  /** Bytes of that message received so far, including its envelope. */
  #seen = 0;

  /** Calls `onSync` at the end of each batch, with the server's revision, or 0 if the server sends none. */
  constructor(onSync: (revision: number) => void) {
    this.#onSync = onSync;
  }

  read(chunk: Buffer, start: number, end: number): void {
    let at = start;
    while (at < end) {
      if (this.#seen === 0 && end - at >= envelopeBytes) {
        const next = at + envelopeBytes + readLength(chunk, at);
        if (next <= end) {
          if (chunk[at + envelopeBytes] === syncTag && next > at + envelopeBytes) {
            this.#onSync(readRevision(chunk, at + envelopeBytes, next));
          }
          at = next;
          continue;
        }
      }
      at = this.#readPiece(chunk, at, end);
    }
  }

  /** Reads the available part of one message, and returns its end in the chunk. */
  #readPiece(chunk: Buffer, start: number, end: number): number {
    this.#kept ??= Buffer.alloc(keptBytes);
    let at = start;
    if (this.#seen < envelopeBytes) {
      const copied = chunk.copy(this.#kept, this.#seen, at, Math.min(end, at + envelopeBytes - this.#seen));
      this.#seen += copied;
      at += copied;
      if (this.#seen < envelopeBytes) return at;
    }
    const total = envelopeBytes + readLength(this.#kept, 0);
    const taken = Math.min(end - at, total - this.#seen);
    if (this.#seen < keptBytes) chunk.copy(this.#kept, this.#seen, at, at + taken);
    this.#seen += taken;
    if (this.#seen === total) {
      this.#seen = 0;
      if (this.#kept[envelopeBytes] === syncTag && total > envelopeBytes) {
        this.#onSync(readRevision(this.#kept, envelopeBytes, Math.min(total, keptBytes)));
      }
    }
    return at + taken;
  }
}

function readLength(chunk: Buffer, at: number): number {
  if (chunk[at] !== 0) throw new Error(`the message is compressed or not gRPC: first byte ${chunk[at]}`);
  return chunk.readUInt32BE(at + 1);
}

/** Returns the revision of the Sync between `start` and `end`. */
function readRevision(chunk: Buffer, start: number, end: number): number {
  let at = start + 2;
  if (end - at < 3 || chunk[at] !== revisionTag[0] || chunk[at + 1] !== revisionTag[1]) return 0;
  let revision = 0;
  let factor = 1;
  for (at += 2; at < end; at += 1) {
    const byte = chunk[at] ?? 0;
    revision += (byte & 0x7f) * factor;
    factor *= 128;
    if (byte < 0x80) break;
  }
  return revision;
}
