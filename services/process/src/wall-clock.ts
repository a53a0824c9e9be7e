/**
 * The system's clock with fractions of a millisecond, which Date.now lacks: the monotonic clock, held within the
 * millisecond that Date.now names. What it gives may be compared with another process of this machine, and it follows
 * the clock when that is set or slewed.
 */
export class WallClock {
  readonly #dateMs: () => number;
  readonly #monotonicMs: () => number;
  #offsetMs: number;

  /** `offsetMs`: where the monotonic clock began, as well as it is known. */
  constructor(
    dateMs: () => number = Date.now,
    monotonicMs: () => number = () => performance.now(),
    offsetMs: number = performance.timeOrigin,
  ) {
    this.#dateMs = dateMs;
    this.#monotonicMs = monotonicMs;
    this.#offsetMs = offsetMs;
  }

  /** Milliseconds since 1970. */
  now(): number {
    const earliestMs = this.#dateMs();
    const monotonicMs = this.#monotonicMs();
    const nowMs = monotonicMs + this.#offsetMs;
    if (nowMs >= earliestMs && nowMs <= earliestMs + 1) return nowMs;
    // Between two looks at the date, so that a thread that was put aside there does not take the pause for an error.
    const latestMs = this.#dateMs() + 1;
    if (nowMs < earliestMs) this.#offsetMs += earliestMs - nowMs;
    else if (nowMs > latestMs) this.#offsetMs += latestMs - nowMs;
    return monotonicMs + this.#offsetMs;
  }
}

const clock = new WallClock();

/** Milliseconds since 1970, with fractions; see {@link WallClock}. */
export function wallClockMs(): number {
  return clock.now();
}
