import { BinaryReader } from "@bufbuild/protobuf/wire";

/** Length of what precedes a gRPC message: a byte that says whether it is compressed, and the message's length. */
const prefixBytes = 5;

/** Tag of OpItem.Sync (field 1, length-delimited): only the operation that ends a batch starts with this byte. */
const syncTag = 0x0a;

const nothing = Buffer.alloc(0);

/** Number of the field EmptyOp.Revision. */
const revisionField = 100;

/**
 * Finds the Syncs, which end batches, in the data of a Watch stream. It skips from message to message by their lengths
 * and reads only the first byte of each, so that a fleet can receive large views without decoding them.
 */
export class SyncReader {
  readonly #onSync: (message: Uint8Array) => void;
  /** Start of a message that may be a Sync and has not arrived completely. */
  #pending = nothing;
  /** Bytes still to come of a message that is skipped. */
  #skippedBytes = 0;

  /** `onSync` gets each Sync as an encoded OpItem, which is valid only during the call. */
  constructor(onSync: (message: Uint8Array) => void) {
    this.#onSync = onSync;
  }

  /** Reads the next piece of the stream. Errors: throws for a compressed message. */
  read(chunk: Buffer): void {
    const skipped = Math.min(this.#skippedBytes, chunk.length);
    this.#skippedBytes -= skipped;
    const data = this.#pending.length === 0 ? chunk.subarray(skipped) : Buffer.concat([this.#pending, chunk]);
    let at = 0;
    while (at + prefixBytes < data.length) {
      if (data[at] !== 0) throw new Error("the watcher sends compressed messages, which this client did not ask for");
      const end = at + prefixBytes + data.readUInt32BE(at + 1);
      const isSync = data[at + prefixBytes] === syncTag && end > at + prefixBytes;
      if (isSync && end > data.length) break;
      if (isSync) this.#onSync(data.subarray(at + prefixBytes, end));
      this.#skippedBytes += Math.max(0, end - data.length);
      at = Math.min(end, data.length);
    }
    this.#pending = at === data.length ? nothing : Buffer.from(data.subarray(at));
  }
}

/** Returns EmptyOp.Revision of an encoded Sync; 0 if it has none, as from the original KPNG. */
export function readRevision(sync: Uint8Array): bigint {
  const reader = new BinaryReader(sync);
  // The tag of OpItem.Sync, and the length of EmptyOp, whose first field is the revision.
  reader.tag();
  const hasFields = reader.uint32() > 0;
  return hasFields && reader.tag()[0] === revisionField ? BigInt(reader.uint64()) : 0n;
}
