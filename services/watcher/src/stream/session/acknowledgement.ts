import type { Ack } from "@kpng/model/gen/localv1/api_pb.ts";

/** A subscriber's report about the revisions that were sent to it; see Ack. */
export interface Acknowledgement {
  /** Newest revision that the subscriber has applied; 0 if it has applied none. */
  readonly applied: number;
  /** Revision that the subscriber could not apply; 0 if the last attempt succeeded. Default 0. */
  readonly failed?: number;
  /** Error of the attempt to apply `failed`. */
  readonly error?: string;
  readonly timings?: ApplyTimings | undefined;
  /** Time since the subscriber applied `applied`, in milliseconds. Default 0. */
  readonly ageMs?: number;
  /** Revisions that were applied before `applied` and have not been acknowledged yet, oldest first. Default none. */
  readonly earlier?: readonly EarlierApplied[];
}

export function readAcknowledgement({
  Applied,
  Failed,
  Error: error,
  Timings,
  AgeMicros,
  Earlier,
}: Ack): Acknowledgement {
  const timings = Timings && {
    waitMs: Number(Timings.WaitMicros) / 1_000,
    renderMs: Number(Timings.RenderMicros) / 1_000,
    commitMs: Number(Timings.CommitMicros) / 1_000,
  };
  const earlier = Earlier.map((one) => ({ applied: Number(one.Applied), ageMs: ageOf(Number(one.AgeMicros)) }));
  return { applied: Number(Applied), failed: Number(Failed), error, timings, ageMs: ageOf(Number(AgeMicros)), earlier };
}

/** Durations of the stages of applying a batch on the node, in milliseconds. */
export interface ApplyTimings {
  readonly waitMs: number;
  readonly renderMs: number;
  readonly commitMs: number;
}

/**
 * Returns the minimum time between two acknowledgements on a stream, in milliseconds. With up to 2 000 streams, all
 * nodes together send at most 1 000 acknowledgements per second; beyond that, each node sends at most one every 2
 * seconds.
 */
export function ackIntervalFor(openCount: number): number {
  return Math.min(Math.max(openCount, 100), 2_000);
}

/** A revision that a subscriber applied, and its age in milliseconds when the acknowledgement was sent. */
interface EarlierApplied {
  readonly applied: number;
  readonly ageMs: number;
}

/** Maximum number of earlier revisions in an acknowledgement. `openLocalWatch` refuses an acknowledgement with more. */
export const maxEarlier = 32;

/** Cap on the ages that nodes report, in milliseconds; far above the interval between acknowledgements. */
const maxAgeMs = 60_000;

function ageOf(micros: number): number {
  return Math.min(micros / 1_000, maxAgeMs);
}
