/** Best known time at which the monotonic clock was 0, in milliseconds since 1970. */
let offsetMs = performance.timeOrigin;

/**
 * Returns milliseconds since 1970 with fractions, which Date.now lacks, for times that travel between processes, such as
 * when a change was received. For delays and time limits, use `Clock`: it never jumps.
 *
 * It is the monotonic clock plus an offset, which is corrected so that the result stays within the millisecond that
 * Date.now returns, also when the system clock is set or slewed.
 */
export function wallClockMs(): number {
  const earliestMs = Date.now();
  const nowMs = performance.now() + offsetMs;
  const boundMs = Math.min(Math.max(nowMs, earliestMs), earliestMs + 1);
  offsetMs += boundMs - nowMs;
  return boundMs;
}
