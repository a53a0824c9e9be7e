import { WireType } from "@bufbuild/protobuf/wire";
import { WireError } from "./wire-error.ts";

/** Value of the lowest bit of the last byte in a varint of up to 2^53 − 1. */
const maxScale = 0x80 ** 7;

/**
 * Reads the fields of a protobuf message one after the other, and those of embedded messages in place, without a reader
 * or a copy of their own. The watcher reads acknowledgements (`Acknowledgement.fromBytes`) and its own frames with it:
 * they occur so often that the protobuf library's decoder would take most of the time.
 * `hasMoreFields` counts with it the fields of a message that may be hostile.
 *
 * Errors: every method throws WireError for a truncated or malformed message.
 *
 * `MessageWriter` is the reverse, and shares only `tagsOf` with it.
 */
export class MessageReader {
  readonly #bytes: Uint8Array;
  #at: number;
  #end: number;

  constructor(bytes: Uint8Array, start = 0) {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = bytes.length;
  }

  /** Tag of the next field (see `tagsOf`), whose value must be read next; 0 at the end of the message. */
  next(): number {
    if (this.#at === this.#end) return 0;
    const tag = this.number();
    if (tag >> 3 === 0) throw new WireError("a field has the number 0");
    return tag;
  }

  /** Value of an unsigned integer or enum field, from 0 to 2^53 − 1. Errors: also for larger and negative values. */
  number(): number {
    const first = this.#byte();
    if (first < 0x80) return first;
    let value = first & 0x7f;
    for (let scale = 0x80; scale <= maxScale; scale *= 0x80) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80 && value <= Number.MAX_SAFE_INTEGER) return value;
    }
    throw new WireError("a number is larger than 2^53 - 1");
  }

  /** Content of a length-delimited field: a view of the message's memory. */
  bytes(): Uint8Array {
    const outerEnd = this.open();
    const content = this.#bytes.subarray(this.#at, this.#end);
    this.close(outerEnd);
    return content;
  }

  /**
   * Enters an embedded message: {@link next} then returns its fields, and 0 at its end. The result is for {@link
   * close}.
   */
  open(): number {
    const outerEnd = this.#end;
    const end = this.number() + this.#at;
    if (end > outerEnd) throw truncated();
    this.#end = end;
    return outerEnd;
  }

  /** Leaves the embedded message and skips those of its fields that were not read. */
  close(outerEnd: number): void {
    this.#at = this.#end;
    this.#end = outerEnd;
  }

  /** Skips the value of a field with this tag. Errors: also for a group, which no message of ours has. */
  skip(tag: number): void {
    switch (tag & 7) {
      case WireType.Varint:
        while (this.#byte() >= 0x80);
        break;
      case WireType.LengthDelimited:
        this.close(this.open());
        break;
      case WireType.Bit32:
        this.#advance(4);
        break;
      case WireType.Bit64:
        this.#advance(8);
        break;
      default:
        throw new WireError("a field is a group, or has an unknown type");
    }
  }

  #advance(count: number): void {
    if (this.#at + count > this.#end) throw truncated();
    this.#at += count;
  }

  #byte(): number {
    if (this.#at >= this.#end) throw truncated();
    return this.#bytes[this.#at++] ?? 0;
  }
}

function truncated(): WireError {
  return new WireError("a message is truncated");
}
