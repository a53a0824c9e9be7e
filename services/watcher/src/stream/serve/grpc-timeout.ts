/** Longest delay of a Node.js timer, in milliseconds: 24.8 days. A longer one would fire at once. */
const maxTimerMs = 2 ** 31 - 1;

const unitMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/**
 * Returns the time limit of a call in milliseconds, at most 24.8 days; undefined without the header, and "invalid" for
 * a value that gRPC does not allow.
 *
 * *Shape:* up to eight digits and a unit, `1500m` for 1.5 s; see "Timeout" in gRPC's PROTOCOL-HTTP2.md.
 *
 * `makeFastWatch` calls it, and sets the timer of the call itself.
 */
export function readTimeout(header: string | string[] | undefined): number | "invalid" | undefined {
  if (header === undefined) return undefined;
  const [, digits, unit = ""] = /^(\d{1,8})([HMSmun])$/.exec(String(header)) ?? [];
  const factorMs = unitMs[unit];
  if (digits === undefined || factorMs === undefined) return "invalid";
  return Math.min(Number(digits) * factorMs, maxTimerMs);
}

/**
 * Deletes the deadline of a call if it is beyond the longest timer. `makeRequestHandler` calls it for calls that the
 * Connect library serves: with such a deadline, its timer would fire at once, with a warning on standard error.
 * Separate from `makeRequestHandler`, because `makeFastWatch` reads the same header with `readTimeout`.
 */
export function dropDistantDeadline(header: Headers): void {
  const timeout = readTimeout(header.get("grpc-timeout") ?? undefined);
  if (timeout === maxTimerMs) header.delete("grpc-timeout");
  if (Number(header.get("connect-timeout-ms") ?? 0) > maxTimerMs) header.delete("connect-timeout-ms");
}
