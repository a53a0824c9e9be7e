import {
  type Ack,
  AckSchema,
  AckTimingsSchema,
  EarlierAckSchema,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { MessageReader, tagsOf, WireError } from "@kpng/model/wire/protobuf.ts";

/**
 * The report of a subscriber about the revisions that it was sent: applied or failed, and how long that took; see Ack.
 *
 * `makeFastWatch` reads it from bytes, and `openLocalWatch` from a decoded request. `Subscriber` stores it. Separate
 * from `Subscriber`, because reading one must be fast and needs no state.
 */
export class Acknowledgement {
  /** Newest revision that the subscriber has applied; 0 for none. */
  readonly applied: number;
  /** Revision that the subscriber could not apply; 0 if the last attempt succeeded. */
  readonly failed: number;
  readonly error: string;
  readonly timings: ApplyTimings | undefined;
  /** How long ago the subscriber applied it, in milliseconds. */
  readonly ageMs: number;
  /** Revisions that were applied before and not acknowledged yet, oldest first. */
  readonly earlier: readonly EarlierApplied[];

  constructor(applied: number, failed = 0, error = "", timings?: ApplyTimings, ageMs = 0, earlier = noEarlier) {
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
    const earlier = Earlier.map((one) => ({
      applied: Number(one.Applied),
      ageMs: ageOf(Number(one.AgeMicros)),
    }));
    return new Acknowledgement(Number(Applied), Number(Failed), error, made, ageOf(Number(AgeMicros)), earlier);
  }

  /**
   * Reads a WatchReq that contains only an acknowledgement of success, as nearly all do, in a fraction of the decoder's
   * time. Returns undefined for every other message, which the caller then decodes.
   */
  static fromBytes(bytes: Uint8Array): Acknowledgement | undefined {
    try {
      return readSuccess(bytes);
    } catch (error) {
      if (error instanceof WireError) return undefined;
      throw error;
    }
  }
}

/** How long the stages of applying a batch took on the node, in milliseconds. */
export interface ApplyTimings {
  readonly waitMs: number;
  readonly renderMs: number;
  readonly commitMs: number;
}

/**
 * Returns the minimum time between two acknowledgements of one stream, in milliseconds, if `openCount` streams are
 * open.
 *
 * It bounds the total cost of acknowledgements, however often the cluster changes: 1 000 per second for up to 2 000
 * streams, and one per stream in 2 seconds beyond that.
 */
export function ackIntervalFor(openCount: number): number {
  return Math.min(Math.max(openCount, 100), 2_000);
}

/** A revision that a subscriber applied, and its age in milliseconds when the acknowledgement was sent. */
export interface EarlierApplied {
  readonly applied: number;
  readonly ageMs: number;
}

const noEarlier: readonly EarlierApplied[] = [];

/** Maximum number of earlier revisions in an acknowledgement. `openLocalWatch` refuses one with more. */
export const maxEarlier = 32;

/** Cap on the ages that nodes report, in milliseconds. */
const maxAgeMs = 60_000;

function ageOf(micros: number): number {
  return Math.min(micros / 1_000, maxAgeMs);
}

const requestTags = tagsOf(WatchReqSchema);
const ackTags = tagsOf(AckSchema);
const timingsTags = tagsOf(AckTimingsSchema);
const earlierTags = tagsOf(EarlierAckSchema);

function readSuccess(bytes: Uint8Array): Acknowledgement | undefined {
  const reader = new MessageReader(bytes);
  if (reader.next() !== requestTags.Ack) return undefined;
  const outerEnd = reader.open();
  let applied = 0;
  let timings: ApplyTimings | undefined;
  let ageMs = 0;
  let earlier: EarlierApplied[] | undefined;
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if (tag === ackTags.Applied) applied = reader.number();
    // The decoder merges a repeated Timings field by field.
    else if (tag === ackTags.Timings && timings === undefined) timings = readTimings(reader);
    else if (tag === ackTags.AgeMicros) ageMs = ageOf(reader.number());
    else if (tag === ackTags.Earlier) {
      earlier ??= [];
      if (earlier.length === maxEarlier) return undefined;
      earlier.push(readEarlier(reader));
    } else return undefined;
  }
  reader.close(outerEnd);
  if (reader.next() !== 0) return undefined;
  return new Acknowledgement(applied, 0, "", timings, ageMs, earlier);
}

function readTimings(reader: MessageReader): ApplyTimings {
  const outerEnd = reader.open();
  let [waitMs, renderMs, commitMs] = [0, 0, 0];
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if (tag === timingsTags.WaitMicros) waitMs = reader.number() / 1_000;
    else if (tag === timingsTags.RenderMicros) renderMs = reader.number() / 1_000;
    else if (tag === timingsTags.CommitMicros) commitMs = reader.number() / 1_000;
    else throw new WireError("an acknowledgement has an unknown field");
  }
  reader.close(outerEnd);
  return { waitMs, renderMs, commitMs };
}

function readEarlier(reader: MessageReader): EarlierApplied {
  const outerEnd = reader.open();
  let [applied, ageMs] = [0, 0];
  for (let tag = reader.next(); tag !== 0; tag = reader.next()) {
    if (tag === earlierTags.Applied) applied = reader.number();
    else if (tag === earlierTags.AgeMicros) ageMs = ageOf(reader.number());
    else throw new WireError("an acknowledgement has an unknown field");
  }
  reader.close(outerEnd);
  return { applied, ageMs };
}
