import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

/** Converts a time in milliseconds since 1970 to a Timestamp, precise to the microsecond. */
export function timestampOf(ms: number): Timestamp {
  return create(TimestampSchema, split(ms));
}

/** Converts a duration in milliseconds to a Duration, precise to the microsecond; a negative one becomes zero. */
export function durationOf(ms: number): Duration {
  return create(DurationSchema, split(Math.max(0, ms)));
}

function split(ms: number): { readonly seconds: bigint; readonly nanos: number } {
  const micros = Math.round(ms * 1_000);
  return { seconds: BigInt(Math.floor(micros / 1_000_000)), nanos: (micros % 1_000_000) * 1_000 };
}
