import type { Ack } from "@kpng/model/gen/localv1/api_pb.ts";

/** Where the time went that a subscriber took to apply what it received, in milliseconds. */
export interface ApplyTimings {
  readonly waitMs: number;
  readonly renderMs: number;
  readonly commitMs: number;
}

/**
 * Returns the shortest time between two acknowledgements of a stream, in milliseconds, among so many streams: what they
 * cost together is then bounded, however often something changes: a thousand a second up to two thousand streams, and
 * half as many as there are streams beyond that.
 */
export function ackIntervalFor(openCount: number): number {
  return Math.min(Math.max(openCount, 100), 2_000);
}

/** A revision that was applied, and how long ago in milliseconds. */
export interface EarlierApplied {
  readonly applied: number;
  readonly ageMs: number;
}

const noneEarlier: readonly EarlierApplied[] = [];

/** Most revisions that an acknowledgement may tell of beside the newest. */
const maxEarlier = 32;

/** Times of a node's clock that are longer are not believed, in milliseconds. */
const maxAgeMs = 60_000;

/** What a subscriber says of the revisions that it was sent; see Ack. */
export class Acknowledgement {
  /** 0 for none. */
  readonly applied: number;
  /** 0 if the last attempt succeeded. */
  readonly failed: number;
  readonly error: string;
  readonly timings: ApplyTimings | undefined;
  /** How long ago that was, in milliseconds. */
  readonly ageMs: number;
  /** What was applied before and not acknowledged, the oldest first. */
  readonly earlier: readonly EarlierApplied[];

  constructor(applied: number, failed = 0, error = "", timings?: ApplyTimings, ageMs = 0, earlier = noneEarlier) {
    this.applied = applied;
    this.failed = failed;
    this.error = error;
    this.timings = timings;
    this.ageMs = ageMs;
    this.earlier = earlier;
  }

  static fromMessage({ Applied, Failed, Error: error, Timings: timings, AgeMicros, Earlier }: Ack): Acknowledgement {
    const made = timings && {
      waitMs: Number(timings.WaitMicros) / 1_000,
      renderMs: Number(timings.RenderMicros) / 1_000,
      commitMs: Number(timings.CommitMicros) / 1_000,
    };
    const earlier = Earlier.slice(-maxEarlier).map((one) => ({
      applied: Number(one.Applied),
      ageMs: ageOf(Number(one.AgeMicros)),
    }));
    return new Acknowledgement(Number(Applied), Number(Failed), error, made, ageOf(Number(AgeMicros)), earlier);
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
    let ageMs = 0;
    let earlier: EarlierApplied[] | undefined;
    while (reader.at < bytes.length) {
      const tag = reader.next();
      if (tag === appliedTag) applied = reader.next();
      // Two of them would be one of which each field is the last that was given.
      else if (tag === timingsTag && timings === undefined) timings = readTimings(reader);
      else if (tag === ageTag) ageMs = ageOf(reader.next());
      else if (tag === earlierTag) {
        earlier ??= [];
        earlier.push(readEarlier(reader));
      } else return undefined;
    }
    if (reader.at !== bytes.length || (earlier?.length ?? 0) > maxEarlier) return undefined;
    return new Acknowledgement(applied, 0, "", timings, ageMs, earlier);
  }
}

function ageOf(micros: number): number {
  return Math.min(micros / 1_000, maxAgeMs);
}

// Tags of WatchReq.Ack, and of the fields of Ack and AckTimings that success has.
const ackTag = [0xba, 0x06] as const;
const appliedTag = 0x08;
const timingsTag = 0x22;
const ageTag = 0x28;
const earlierTag = 0x32;
const earlierAppliedTag = 0x08;
const earlierAgeTag = 0x10;
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

function readEarlier(reader: VarintReader): EarlierApplied {
  const length = reader.next();
  const end = reader.at + length;
  let [applied, ageMs] = [0, 0];
  while (reader.at < end) {
    const tag = reader.next();
    const value = reader.next();
    if (tag === earlierAppliedTag) applied = value;
    else if (tag === earlierAgeTag) ageMs = ageOf(value);
    else reader.fail();
  }
  if (reader.at !== end) reader.fail();
  return { applied, ageMs };
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
