import type { Ack } from "@kpng/model/gen/localv1/api_pb.ts";

/** Where the time went that a subscriber took to apply what it received, in milliseconds. */
export interface ApplyTimings {
  readonly waitMs: number;
  readonly renderMs: number;
  readonly commitMs: number;
}

/** What a subscriber says of the revisions that it was sent; see Ack. */
export class Acknowledgement {
  /** 0 for none. */
  readonly applied: number;
  /** 0 if the last attempt succeeded. */
  readonly failed: number;
  readonly error: string;
  readonly timings: ApplyTimings | undefined;

  constructor(applied: number, failed = 0, error = "", timings?: ApplyTimings) {
    this.applied = applied;
    this.failed = failed;
    this.error = error;
    this.timings = timings;
  }

  static fromMessage({ Applied, Failed, Error: error, Timings: timings }: Ack): Acknowledgement {
    const made = timings && {
      waitMs: Number(timings.WaitMicros) / 1_000,
      renderMs: Number(timings.RenderMicros) / 1_000,
      commitMs: Number(timings.CommitMicros) / 1_000,
    };
    return new Acknowledgement(Number(Applied), Number(Failed), error, made);
  }

  /**
   * Reads a WatchReq that is an acknowledgement of success and nothing else, as nearly all are; returns undefined for any
   * other, which is then for the decoder.
   */
  static fromBytes(bytes: Uint8Array): Acknowledgement | undefined {
    if (bytes[0] !== ackTag[0] || bytes[1] !== ackTag[1]) return undefined;
    const reader = new VarintReader(bytes, ackTag.length);
    if (reader.next() !== bytes.length - reader.at) return undefined;
    let applied = 0;
    let timings: ApplyTimings | undefined;
    while (reader.at < bytes.length) {
      const tag = reader.next();
      if (tag === appliedTag) applied = reader.next();
      else if (tag === timingsTag) timings = readTimings(reader);
      else return undefined;
    }
    return reader.at === bytes.length ? new Acknowledgement(applied, 0, "", timings) : undefined;
  }
}

// Tags of WatchReq.Ack, and of the fields of Ack and AckTimings that success has.
const ackTag = [0xba, 0x06] as const;
const appliedTag = 0x08;
const timingsTag = 0x22;
const waitTag = 0x08;
const renderTag = 0x10;
const commitTag = 0x18;

function readTimings(reader: VarintReader): ApplyTimings | undefined {
  const length = reader.next();
  const end = reader.at + length;
  let [waitMs, renderMs, commitMs] = [0, 0, 0];
  while (reader.at < end) {
    const tag = reader.next();
    const ms = reader.next() / 1_000;
    if (tag === waitTag) waitMs = ms;
    else if (tag === renderTag) renderMs = ms;
    else if (tag === commitTag) commitMs = ms;
    else return reader.fail();
  }
  return reader.at === end ? { waitMs, renderMs, commitMs } : reader.fail();
}

/** Reads numbers one after the other; what cannot be one puts it beyond any end. */
class VarintReader {
  readonly #bytes: Uint8Array;
  at: number;

  constructor(bytes: Uint8Array, start: number) {
    this.#bytes = bytes;
    this.at = start;
  }

  /** From 0 to 2^53 − 1. */
  next(): number {
    let value = 0;
    for (let scale = 1; scale <= largestScale; scale *= 0x80) {
      const byte = this.#bytes[this.at];
      if (byte === undefined) break;
      this.at += 1;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80 && value <= Number.MAX_SAFE_INTEGER) return value;
    }
    this.fail();
    return 0;
  }

  fail(): undefined {
    this.at = Number.POSITIVE_INFINITY;
  }
}

/** Of the last byte that a number up to 2^53 can have. */
const largestScale = 0x80 ** 7;
