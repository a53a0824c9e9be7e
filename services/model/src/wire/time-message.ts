import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

/**
 * Returns the message of a time, given in milliseconds since 1970; precise to the microsecond.
 */
export function timestampOf(ms: number): Timestamp {
  return create(TimestampSchema, split(ms));
}

/** Returns the message of a duration, given in milliseconds; precise to the microsecond, and not negative. */
export function durationOf(ms: number): Duration {
  return create(DurationSchema, split(Math.max(0, ms)));
}

function split(ms: number): { readonly seconds: bigint; readonly nanos: number } {
  const micros = Math.round(ms * 1_000);
  return { seconds: BigInt(Math.floor(micros / 1_000_000)), nanos: (micros % 1_000_000) * 1_000 };
}
