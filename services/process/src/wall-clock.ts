/** Milliseconds since 1970, with fractions; a clock that is set while the process runs does not make it jump. */
export function wallClockMs(): number {
  return performance.timeOrigin + performance.now();
}
