/**
 * The system clock with fractions of a millisecond, which Date.now lacks. It is used for times that travel between
 * processes, such as when a change was received.
 *
 * It is the monotonic clock plus an offset, corrected so that the result stays within the millisecond that Date.now
 * returns. Its times can be compared with those of another process on this machine. It follows the system clock when
 * that is set or slewed.
 */
export class WallClock {
  readonly #dateMs: () => number;
  readonly #monotonicMs: () => number;
  #offsetMs: number;

  /** `offsetMs` is the best known time at which the monotonic clock was 0, in milliseconds since 1970. */
  constructor(
    dateMs: () => number = Date.now,
    monotonicMs: () => number = () => performance.now(),
    offsetMs: number = performance.timeOrigin,
  ) {
    this.#dateMs = dateMs;
    this.#monotonicMs = monotonicMs;
    this.#offsetMs = offsetMs;
  }

  /** Milliseconds since 1970, with fractions. */
  now(): number {
    const earliestMs = this.#dateMs();
    const monotonicMs = this.#monotonicMs();
    const nowMs = monotonicMs + this.#offsetMs;
    if (nowMs >= earliestMs && nowMs <= earliestMs + 1) return nowMs;
    // The monotonic clock is read between two reads of the date, so that a thread that is descheduled in between does
    // not take the pause for an error of the offset.
    const latestMs = this.#dateMs() + 1;
    if (nowMs < earliestMs) this.#offsetMs += earliestMs - nowMs;
    else if (nowMs > latestMs) this.#offsetMs += latestMs - nowMs;
    return monotonicMs + this.#offsetMs;
  }
}

const clock = new WallClock();

/** Milliseconds since 1970, with fractions; see {@link WallClock}. For delays and time limits, use `Clock`: it never jumps. */
export function wallClockMs(): number {
  return clock.now();
}
