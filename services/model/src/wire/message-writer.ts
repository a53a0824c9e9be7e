import { writeVarint } from "./varint.ts";

const wireVarint = 0;
const wireBytes = 2;

/** Longest varint of a length, in bytes. */
const maxLengthBytes = 5;

/** Longest varint of all, in bytes. */
const maxVarintBytes = 10;

/**
 * Writes one protobuf message after the other into memory that is used again and again: for the few messages of which there
 * are as many as endpoints, and for which describing them to a library's writer takes longer than all the rest. Fields
 * must be written in the order of their numbers; as in proto3, what has its default value is left out.
 *
 * Source: the encoding of Protocol Buffers, "Message Structure".
 */
export class MessageWriter {
  #bytes = Buffer.allocUnsafeSlow(4_096);
  #end = 0;

  /** Begins a message: nothing is left of one that was given up half-way. */
  begin(): void {
    this.#end = 0;
  }

  string(field: number, text: string): void {
    if (text !== "") this.element(field, text);
  }

  /** Likewise, also where it is empty: an element of a repeated field. */
  element(field: number, text: string): void {
    // A UTF-16 unit becomes three bytes at most.
    const most = text.length * 3;
    this.#reserve(most + 2 * maxLengthBytes);
    this.#tag(field, wireBytes);
    this.#varint(most < 0x80 ? 0 : Buffer.byteLength(text));
    const start = this.#end;
    this.#end += this.#bytes.write(text, start);
    if (most < 0x80) this.#bytes[start - 1] = this.#end - start;
  }

  bool(field: number, value: boolean): void {
    if (value) this.number(field, 1);
  }

  /** An int32 or an enum. */
  number(field: number, value: number): void {
    if (value === 0) return;
    this.#reserve(maxLengthBytes + maxVarintBytes);
    this.#tag(field, wireVarint);
    if (value > 0) this.#varint(value);
    else this.#negative(value);
  }

  /** Begins a message within the message; what it returns is for {@link close}. */
  open(field: number): number {
    this.#reserve(2 * maxLengthBytes);
    this.#tag(field, wireBytes);
    this.#end += 1;
    return this.#end;
  }

  close(start: number): void {
    const length = this.#end - start;
    if (length < 0x80) {
      this.#bytes[start - 1] = length;
      return;
    }
    // Its length takes more than the byte that was left for it.
    this.#reserve(maxLengthBytes);
    const content = Buffer.from(this.#bytes.subarray(start, this.#end));
    this.#end = start - 1;
    this.#varint(length);
    this.#end += content.copy(this.#bytes, this.#end);
  }

  /** Returns the message, whose memory is used again for the next one: it is valid until then. */
  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#end);
  }

  #tag(field: number, type: number): void {
    this.#varint((field << 3) | type);
  }

  #varint(value: number): void {
    this.#end = writeVarint(this.#bytes, this.#end, value);
  }

  /** In 64 bits, as the encoding wants it. */
  #negative(value: number): void {
    for (let rest = BigInt.asUintN(64, BigInt(value)); rest > 0n; rest >>= 7n) {
      this.#bytes[this.#end++] = Number(rest & 0x7fn) | (rest > 0x7fn ? 0x80 : 0);
    }
  }

  #reserve(count: number): void {
    if (this.#end + count <= this.#bytes.length) return;
    const longer = Buffer.allocUnsafeSlow((this.#end + count) * 2);
    this.#bytes.copy(longer, 0, 0, this.#end);
    this.#bytes = longer;
  }
}
