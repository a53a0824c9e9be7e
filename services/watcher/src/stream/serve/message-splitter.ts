import { Code, ConnectError } from "@connectrpc/connect";
import { frameHeaderBytes } from "../../items/frames.ts";

const noBytes = new Uint8Array();

/**
 * Takes the messages of a gRPC request out of its chunks.
 *
 * *Bound:* one message of at most `maxBytes` and the chunk that ends it.
 */
export class MessageSplitter {
  readonly #maxBytes: number;
  #rest: Uint8Array = noBytes;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Uint8Array): void {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
  }

  /**
   * The next message that is complete; undefined for none.
   *
   * Errors: ConnectError RESOURCE_EXHAUSTED for one that is too long, UNIMPLEMENTED for a compressed one.
   */
  next(): Uint8Array | undefined {
    const rest = this.#rest;
    if (rest.length < frameHeaderBytes) return undefined;
    if (rest[0] !== 0) throw new ConnectError("compressed requests are not understood here", Code.Unimplemented);
    const length = (((rest[1] ?? 0) << 24) | ((rest[2] ?? 0) << 16) | ((rest[3] ?? 0) << 8) | (rest[4] ?? 0)) >>> 0;
    if (length > this.#maxBytes) {
      throw new ConnectError(`message size ${length} is larger than ${this.#maxBytes}`, Code.ResourceExhausted);
    }
    const end = frameHeaderBytes + length;
    if (rest.length < end) return undefined;
    this.#rest = rest.length === end ? noBytes : rest.subarray(end);
    return rest.subarray(frameHeaderBytes, end);
  }

  /** The request is over. Errors: ConnectError INVALID_ARGUMENT for one that ends inside a message. */
  end(): void {
    const { length } = this.#rest;
    if (length > 0) throw new ConnectError(`the request ends ${length} bytes into a message`, Code.InvalidArgument);
  }
}
