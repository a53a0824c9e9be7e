import { align4 } from "./netlink-writer.ts";

/** One message as the kernel sends it. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  /** Part after the 16-byte netlink header. */
  readonly payload: Buffer;
}

/**
 * Splits the result of one read of a socket into messages, for `NftablesConnection`. A truncated rest is ignored: the
 * kernel sends none. This file knows only the framing of netlink; `read-objects.ts` decodes what nftables puts into it.
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

/**
 * Calls `take` with each attribute of a list; the value is a view of `bytes`. `read-objects.ts` decodes messages with
 * it.
 */
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
