import { Code, ConnectError } from "@connectrpc/connect";
import { frameHeaderBytes } from "../../items/frames.ts";

/**
 * Splits the data of a gRPC request into messages, for `makeFastWatch`, which reads HTTP/2 streams itself. Separate
 * from it, because it knows only the framing of gRPC.
 *
 * *Bound:* one message of at most `maxBytes`, and the chunk that completes it.
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
   * Returns the next complete message; undefined if there is none.
   *
   * Errors: ConnectError RESOURCE_EXHAUSTED for a message that is too long, UNIMPLEMENTED for a compressed message.
   */
  next(): Uint8Array | undefined {
    const rest = this.#rest;
    if (rest.length < frameHeaderBytes) return undefined;
    if (rest[0] !== 0) throw new ConnectError("compressed requests are not supported", Code.Unimplemented);
    const length = (((rest[1] ?? 0) << 24) | ((rest[2] ?? 0) << 16) | ((rest[3] ?? 0) << 8) | (rest[4] ?? 0)) >>> 0;
    if (length > this.#maxBytes) {
      throw new ConnectError(`the message has ${length} bytes, more than ${this.#maxBytes}`, Code.ResourceExhausted);
    }
    const end = frameHeaderBytes + length;
    if (rest.length < end) return undefined;
    this.#rest = rest.length === end ? noBytes : rest.subarray(end);
    return rest.subarray(frameHeaderBytes, end);
  }

  /** Call at the end of the request. Errors: ConnectError INVALID_ARGUMENT if it ends inside a message. */
  end(): void {
    const { length } = this.#rest;
    if (length > 0) throw new ConnectError(`the request ends ${length} bytes into a message`, Code.InvalidArgument);
  }
}

const noBytes = new Uint8Array();
