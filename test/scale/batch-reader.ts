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
