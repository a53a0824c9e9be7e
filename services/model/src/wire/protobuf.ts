import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";

/** Thrown for an invalid message from a peer. The stream that carried the message must be closed. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code = "BAD_MESSAGE";

  constructor(message: string, options?: ErrorOptions) {
    super(`[BAD_MESSAGE] ${message}`, options);
  }
}

/** Tags of a message's fields, by field name. On the wire, the tag (field number and wire type) precedes a field. */
type FieldTags<S extends DescMessage> = { readonly [Name in keyof S["field"]]: number };

/** Returns the tags of a generated message, e.g. 18 for `tagsOf(RefSchema).Path` (field 2, length-delimited). */
export function tagsOf<S extends DescMessage>(schema: S): FieldTags<S> {
  const tags = Object.entries(schema.field).map(([name, field]) => [name, (field.number << 3) | wireTypeOf(field)]);
  return Object.fromEntries(tags) as FieldTags<S>;
}

/** Wire types of the scalars in our messages that are not varints. */
const wireTypes: { readonly [Type in ScalarType]?: WireType } = {
  [ScalarType.STRING]: WireType.LengthDelimited,
  [ScalarType.BYTES]: WireType.LengthDelimited,
  [ScalarType.FIXED64]: WireType.Bit64,
  [ScalarType.FLOAT]: WireType.Bit32,
};

function wireTypeOf(field: DescField): WireType {
  const isPacked = field.fieldKind === "list" && field.packed;
  if (field.message !== undefined || field.fieldKind === "map" || isPacked) return WireType.LengthDelimited;
  return (field.scalar && wireTypes[field.scalar]) ?? WireType.Varint;
}

/** Maximum encoded length of an unsigned 32-bit number, in bytes. */
const maxUint32Bytes = 5;

/** Maximum encoded length of a tag and a negative number together, in bytes. */
const maxNumberBytes = maxUint32Bytes + 10;

/**
 * Encodes protobuf messages one after another in a reused buffer. The protobuf library takes several times as long,
 * which matters for endpoints and frames.
 *
 * Fields are identified by their tags (see `tagsOf`). The result equals the library's if fields are written in
 * ascending order of their numbers; as in proto3, a field with its default value is left out.
 *
 * *Bound:* the buffer stays twice as long as the longest message so far.
 *
 * Source: https://protobuf.dev/programming-guides/encoding/
 */
export class MessageWriter {
  #bytes: Buffer;
  #end = 0;

  constructor(capacityBytes = 4_096) {
    this.#bytes = Buffer.allocUnsafeSlow(capacityBytes);
  }

  /** Begins a message and discards the previous one, finished or not. */
  begin(): void {
    this.#end = 0;
  }

  string(tag: number, text: string): void {
    if (text !== "") this.element(tag, text);
  }

  /** Writes an element of a repeated string, even if it is empty. */
  element(tag: number, text: string): void {
    // A UTF-16 code unit takes at most three bytes in UTF-8.
    const maxLength = text.length * 3;
    // A length below 0x80 takes one byte, which can be filled in after the text; byteLength would read the text twice.
    const isShort = maxLength < 0x80;
    this.#reserve(maxLength + 2 * maxUint32Bytes);
    this.#varint(tag);
    this.#varint(isShort ? 0 : Buffer.byteLength(text));
    const start = this.#end;
    this.#end += this.#bytes.write(text, start);
    if (isShort) this.#bytes[start - 1] = this.#end - start;
  }

  bytes(tag: number, content: Uint8Array): void {
    if (content.length > 0) this.message(tag, content);
  }

  /** Writes an embedded message that is already encoded, even if it is empty. */
  message(tag: number, content: Uint8Array): void {
    this.#reserve(content.length + 2 * maxUint32Bytes);
    this.#varint(tag);
    this.#varint(content.length);
    this.#bytes.set(content, this.#end);
    this.#end += content.length;
  }

  bool(tag: number, value: boolean): void {
    if (value) this.number(tag, 1);
  }

  /** Writes an int32, a uint32 or an enum. */
  number(tag: number, value: number): void {
    if (value === 0) return;
    this.#reserve(maxNumberBytes);
    this.#varint(tag);
    if (value > 0) this.#varint(value);
    else this.#negative(value);
  }

  /** Begins an embedded message. Returns the argument for {@link close}. */
  open(tag: number): number {
    this.#reserve(2 * maxUint32Bytes);
    this.#varint(tag);
    this.#end += 1;
    return this.#end;
  }

  /** Ends the embedded message that {@link open} began. */
  close(start: number): void {
    const length = this.#end - start;
    // `open` left one byte for the length; a longer length moves the content.
    const shift = lengthOfVarint(length) - 1;
    if (shift > 0) {
      this.#reserve(shift);
      this.#bytes.copyWithin(start + shift, start, this.#end);
    }
    this.#end = start - 1;
    this.#varint(length);
    this.#end += length;
  }

  /** Returns the message: a view of the buffer, valid until the next message begins. */
  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#end);
  }

  /** Writes a number from 0 to 2^32 − 1. */
  #varint(value: number): void {
    let left = value;
    for (; left >= 0x80; left >>>= 7) this.#bytes[this.#end++] = (left & 0x7f) | 0x80;
    this.#bytes[this.#end++] = left;
  }

  /** Writes a negative number as its 64-bit two's complement. */
  #negative(value: number): void {
    for (let left = BigInt.asUintN(64, BigInt(value)); left > 0n; left >>= 7n) {
      this.#bytes[this.#end++] = Number(left & 0x7fn) | (left > 0x7fn ? 0x80 : 0);
    }
  }

  #reserve(count: number): void {
    if (this.#end + count <= this.#bytes.length) return;
    const longer = Buffer.allocUnsafeSlow((this.#end + count) * 2);
    this.#bytes.copy(longer, 0, 0, this.#end);
    this.#bytes = longer;
  }
}

/**
 * Reads the fields of a protobuf message one after another, as {@link MessageWriter} writes them. The protobuf library
 * takes three times as long, which matters for endpoints.
 *
 * Errors: WireError if the message is shorter than its fields say, or has a field that cannot be read.
 */
export class MessageReader {
  readonly #bytes: Buffer;
  #at: number;
  #end: number;

  /** The message is in the bytes from `start` to `end`. */
  constructor(bytes: Uint8Array, start: number, end: number) {
    const { buffer, byteOffset, length } = bytes;
    this.#bytes = bytes instanceof Buffer ? bytes : Buffer.from(buffer, byteOffset, length);
    this.#at = start;
    this.#end = end;
  }

  /** Returns the tag of the next field, whose value must be read or skipped; 0 at the end of the message. */
  next(): number {
    if (this.#at === this.#end) return 0;
    const tag = this.number() >>> 0;
    if (tag >>> 3 === 0) throw new WireError("a field has the number 0");
    return tag;
  }

  /** Reads an int32, an enum, or the lower 32 bits of another varint. */
  number(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.#bytes[this.#advance(1)] ?? 0;
      // JavaScript would take a shift by 35 as one by 3.
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  bool(): boolean {
    return this.number() !== 0;
  }

  string(): string {
    const length = this.number() >>> 0;
    const start = this.#advance(length);
    return this.#bytes.toString("utf8", start, start + length);
  }

  /** Begins to read an embedded message. Returns the argument for {@link leave}. */
  enter(): number {
    const outerEnd = this.#end;
    const length = this.number() >>> 0;
    this.#end = this.#advance(length) + length;
    this.#at = this.#end - length;
    return outerEnd;
  }

  /** Ends the embedded message, all of whose fields were read. */
  leave(outerEnd: number): void {
    this.#end = outerEnd;
  }

  /** Skips the value of a field that is not known. */
  skip(tag: number): void {
    switch (tag & 7) {
      case WireType.Varint:
        this.number();
        return;
      case WireType.LengthDelimited:
        this.#advance(this.number() >>> 0);
        return;
      case WireType.Bit64:
        this.#advance(8);
        return;
      case WireType.Bit32:
        this.#advance(4);
        return;
      default:
        throw new WireError(`a field has the unknown wire type ${tag & 7}`);
    }
  }

  /** Moves on by `length` bytes; returns the position before. */
  #advance(length: number): number {
    const start = this.#at;
    if (length > this.#end - start) throw new WireError("the message ends within a field");
    this.#at = start + length;
    return start;
  }
}

function lengthOfVarint(value: number): number {
  return value < 0x80 ? 1 : value < 0x4000 ? 2 : value < 0x20_0000 ? 3 : value < 0x1000_0000 ? 4 : 5;
}
