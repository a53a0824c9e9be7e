import type { ByteText } from "@kpng/model/byte-text.ts";

/** Flag of an attribute type whose value is a list of attributes. Source: linux/netlink.h, NLA_F_NESTED. */
const nestedFlag = 0x8000;

/** Size of an attribute header: u16 length and u16 type, both in host byte order. */
const attributeHeaderBytes = 4;

/** Length of a netlink message header (16) and of the nfnetlink header that follows it (4). */
const messageHeaderBytes = 20;

/** The header fields of one nfnetlink message. Source: linux/netlink.h and linux/netfilter/nfnetlink.h. */
interface MessageHeader {
  /** `subsystem << 8 | message`, or one of the batch markers. */
  readonly type: number;
  /** NLM_F_* flags. */
  readonly flags: number;
  /** Echoed in the kernel's answer. */
  readonly sequence: number;
  /** AF_INET (2), AF_INET6 (10), or 0 if the message has no family. */
  readonly family: number;
  /** The subsystem in batch markers; 0 in other messages. */
  readonly resourceId?: number | undefined;
}

/**
 * Writes nfnetlink messages into one buffer, and throws RangeError beyond its end. It knows headers, attributes and
 * padding, but no nftables constants.
 *
 * Integers in headers are in host byte order, which is little-endian on every platform where Node.js runs on Linux.
 * Integers in nftables attributes are big-endian.
 */
export class NetlinkWriter {
  readonly #bytes: Buffer;
  #length = 0;

  constructor(maxBytes: number) {
    this.#bytes = Buffer.alloc(maxBytes);
  }

  /** The messages written so far. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Appends one message; `writeAttributes` appends its attributes. */
  message(header: MessageHeader, writeAttributes: () => void = () => undefined): void {
    const start = this.#length;
    this.#length += messageHeaderBytes;
    writeAttributes();
    const bytes = this.#bytes;
    bytes.writeUInt32LE(this.#length - start, start);
    bytes.writeUInt16LE(header.type, start + 4);
    bytes.writeUInt16LE(header.flags, start + 6);
    bytes.writeUInt32LE(header.sequence, start + 8);
    bytes.writeUInt32LE(0, start + 12);
    bytes.writeUInt8(header.family, start + 16);
    bytes.writeUInt8(0, start + 17);
    bytes.writeUInt16BE(header.resourceId ?? 0, start + 18);
  }

  /** Appends an attribute whose value is a list of attributes. Errors: RangeError above 65 535 bytes. */
  nested(type: number, writeAttributes: () => void): void {
    const start = this.#length;
    this.#length += attributeHeaderBytes;
    writeAttributes();
    this.#bytes.writeUInt16LE(this.#length - start, start);
    this.#bytes.writeUInt16LE(type | nestedFlag, start + 2);
  }

  /** Appends an attribute with bytes. */
  value(type: number, bytes: ByteText): void {
    const start = this.#beginValue(type, bytes.length);
    this.#bytes.write(bytes, start, "latin1");
  }

  /** Appends an attribute with an ASCII string and its terminating NUL. */
  text(type: number, text: string): void {
    this.value(type, `${text}\0`);
  }

  /** Appends an attribute with an integer, big-endian. */
  uint32(type: number, value: number): void {
    this.#bytes.writeUInt32BE(value, this.#beginValue(type, 4));
  }

  /** Writes the header and zero padding for a value of `size` bytes; returns the offset at which the value starts. */
  #beginValue(type: number, size: number): number {
    const start = this.#length;
    const padded = attributeHeaderBytes + align4(size);
    this.#bytes.fill(0, start, start + padded);
    this.#bytes.writeUInt16LE(attributeHeaderBytes + size, start);
    this.#bytes.writeUInt16LE(type, start + 2);
    this.#length = start + padded;
    return start + attributeHeaderBytes;
  }
}

/** Netlink aligns messages and attributes to 4 bytes. */
function align4(size: number): number {
  return (size + 3) & ~3;
}

/** One message as the kernel sends it. */
interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  /** Part after the 16-byte netlink header. */
  readonly payload: Buffer;
}

/**
 * Splits the data from one socket read into messages. A truncated message at the end is ignored; the kernel never sends
 * one.
 */
export function* readMessages(bytes: Buffer): Generator<NetlinkMessage, void, void> {
  for (let at = 0; at + 16 <= bytes.length; ) {
    const length = bytes.readUInt32LE(at);
    if (length < 16 || at + length > bytes.length) return;
    yield {
      type: bytes.readUInt16LE(at + 4),
      flags: bytes.readUInt16LE(at + 6),
      sequence: bytes.readUInt32LE(at + 8),
      payload: bytes.subarray(at + 16, at + length),
    };
    at += align4(length);
  }
}

/** Calls `take` with each attribute of a list, its type without flags; the value is a view of `bytes`. */
export function forEachAttribute(bytes: Buffer, take: (type: number, value: Buffer) => void): void {
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = bytes.readUInt16LE(at);
    if (length < 4 || at + length > bytes.length) return;
    take(bytes.readUInt16LE(at + 2) & 0x3fff, bytes.subarray(at + 4, at + length));
    at += align4(length);
  }
}

/** The length of the nfnetlink header that begins the payload of each nftables message. */
export const nfnetlinkHeaderBytes = 4;
