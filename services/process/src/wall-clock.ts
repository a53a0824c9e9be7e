/** Best estimate of the time at which the monotonic clock was 0, in milliseconds since 1970. */
let offsetMs = performance.timeOrigin;

/**
 * Returns milliseconds since 1970 with fractions, which Date.now lacks. Use it for times that travel between processes,
 * such as the time at which a change was received; for delays and time limits, use `Clock`, which never jumps.
 *
 * The result is the monotonic clock plus an offset. The offset is corrected so that the result stays within the
 * millisecond that Date.now returns, even when the system clock is set or slewed.
 */
export function wallClockMs(): number {
  const earliestMs = Date.now();
  const nowMs = performance.now() + offsetMs;
  const boundMs = Math.min(Math.max(nowMs, earliestMs), earliestMs + 1);
  offsetMs += boundMs - nowMs;
  return boundMs;
}
