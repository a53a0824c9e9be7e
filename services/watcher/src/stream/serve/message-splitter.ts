import { Code, ConnectError } from "@connectrpc/connect";
import { frameHeaderBytes } from "../../items/frames.ts";

/**
 * Splits the data of a gRPC request into messages, for `makeFastWatch`, which reads HTTP/2 streams itself. Separate
 * from it, because it knows only the framing of gRPC.
 *
 * *Bound:* twice the size of a message of at most `maxBytes` and the chunks that are pushed while no message is taken.
 */
export class MessageSplitter {
  readonly #maxBytes: number;
  /** A received chunk, or a copy of several with room for more. The bytes from `#start` to `#end` are in no message. */
  #bytes: Uint8Array = noBytes;
  #start = 0;
  #end = 0;
  /** False for a received chunk. */
  #isOwn = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Memory of what is in no message yet, in bytes; after {@link compact}. */
  get heldBytes(): number {
    return this.#end === this.#start ? 0 : this.#bytes.length;
  }

  /**
   * Copies what is in no message yet, if it is a small part of a larger buffer. A chunk keeps the memory of everything
   * that was read from the socket with it.
   */
  compact(): void {
    const heldCount = this.#end - this.#start;
    if (this.#isOwn && this.#bytes.length <= 4 * heldCount) return;
    const held = Buffer.allocUnsafeSlow(heldCount);
    held.set(this.#bytes.subarray(this.#start, this.#end));
    this.#bytes = held;
    this.#isOwn = true;
    this.#start = 0;
    this.#end = heldCount;
  }

  push(chunk: Uint8Array): void {
    const heldCount = this.#end - this.#start;
    if (heldCount === 0) {
      this.#bytes = chunk;
      this.#isOwn = false;
      this.#start = 0;
      this.#end = chunk.length;
      return;
    }
    if (chunk.length > this.#bytes.length - this.#end) {
      // Twice as much as needed: a client may send a message byte by byte, and each copy would take all that it has
      // sent.
      const larger = Buffer.allocUnsafeSlow(2 * (heldCount + chunk.length));
      larger.set(this.#bytes.subarray(this.#start, this.#end));
      this.#bytes = larger;
      this.#isOwn = true;
      this.#start = 0;
      this.#end = heldCount;
    }
    this.#bytes.set(chunk, this.#end);
    this.#end += chunk.length;
  }

  /**
   * Returns the next complete message; undefined if there is none.
   *
   * Errors: ConnectError RESOURCE_EXHAUSTED for a message that is too long, UNIMPLEMENTED for a compressed message.
   */
  next(): Uint8Array | undefined {
    const rest = this.#bytes.subarray(this.#start, this.#end);
    if (rest.length < frameHeaderBytes) return undefined;
    if (rest[0] !== 0) throw new ConnectError("compressed requests are not supported", Code.Unimplemented);
    const length = (((rest[1] ?? 0) << 24) | ((rest[2] ?? 0) << 16) | ((rest[3] ?? 0) << 8) | (rest[4] ?? 0)) >>> 0;
    if (length > this.#maxBytes) {
      throw new ConnectError(`the message has ${length} bytes, more than ${this.#maxBytes}`, Code.ResourceExhausted);
    }
    const end = frameHeaderBytes + length;
    if (rest.length < end) return undefined;
    this.#start += end;
    if (rest.length === end) this.#bytes = noBytes;
    return rest.subarray(frameHeaderBytes, end);
  }

  /** Call at the end of the request. Errors: ConnectError INVALID_ARGUMENT if it ends inside a message. */
  end(): void {
    const length = this.#end - this.#start;
    if (length > 0) throw new ConnectError(`the request ends ${length} bytes into a message`, Code.InvalidArgument);
  }
}

const noBytes = new Uint8Array();
