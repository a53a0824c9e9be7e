import { type Wakeup, waitMs } from "./wait.ts";

/** A clock that is passed as a parameter, so that a test can pass a {@link ManualClock} and need not wait. */
export interface Clock {
  /** Monotonic time in milliseconds, from an arbitrary start. */
  readonly nowMs: () => number;
  /** Resolves after the given milliseconds, or as soon as the signal aborts; never rejects. */
  readonly wait: typeof waitMs;
}

/** The real clock: `performance.now` and timers of Node.js. */
export const realClock: Clock = { nowMs: () => performance.now(), wait: waitMs };

/**
 * Wakes a {@link Wakeup} at a given time, for loops that wait either for events or until their next work is due.
 *
 * It keeps the timer for the earliest time until that timer fires, instead of using one timer per wait: most waits end
 * with an event, and cancelling a timer each time costs more than letting one fire in vain. A loop may therefore be
 * woken when nothing is due.
 *
 * *Bound:* one timer for each call whose time is earlier than the next alarm; a timer is kept until it fires.
 */
export class Alarm {
  readonly #wakeup: Wakeup;
  readonly #clock: Clock;
  #atMs = Number.POSITIVE_INFINITY;

  constructor(wakeup: Wakeup, clock: Clock) {
    this.#wakeup = wakeup;
    this.#clock = clock;
  }

  /**
   * Wakes at the clock's time `atMs` or earlier; never if the time is infinite. When `signal` aborts, wakes
   * immediately.
   */
  set(atMs: number, signal: AbortSignal): void {
    if (atMs >= this.#atMs) return;
    this.#atMs = atMs;
    void this.#clock.wait(Math.max(0, atMs - this.#clock.nowMs()), signal).then(() => {
      // An earlier alarm may have replaced this one.
      if (this.#atMs === atMs) this.#atMs = Number.POSITIVE_INFINITY;
      this.#wakeup.wake();
    });
  }
}

/** Length and randomness of the delays between retries. */
export interface BackoffOptions {
  /** First delay, in milliseconds. Default 800; at least 1, because doubling 0 gives 0. */
  readonly minMs?: number | undefined;
  /** Longest delay, in milliseconds. Default 30 000. */
  readonly maxMs?: number | undefined;
  /**
   * Random share of each delay, 0 to 1. Default 0.5, so that a delay lasts between half of its nominal length and all
   * of it.
   */
  readonly jitter?: number | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * Delays between retries: they double from `minMs` to `maxMs`. Each is shortened at random, so that thousands of nodes
 * that lost the same peer do not reconnect at the same moment. It only computes delays; the caller waits.
 */
export class Backoff {
  readonly #options: Required<{ [K in keyof BackoffOptions]: NonNullable<BackoffOptions[K]> }>;
  #stepMs: number;

  constructor({ minMs = 800, maxMs = 30_000, jitter = 0.5, random = Math.random }: BackoffOptions = {}) {
    this.#options = { minMs: Math.max(1, minMs), maxMs, jitter, random };
    this.#stepMs = this.#options.minMs;
  }

  /** Returns the delay before the next attempt, in milliseconds. */
  nextMs(): number {
    const { maxMs, jitter, random } = this.#options;
    const stepMs = this.#stepMs;
    this.#stepMs = Math.min(stepMs * 2, maxMs);
    return Math.round(stepMs * (1 - jitter * random()));
  }

  /** Starts again at `minMs`. Call it when an attempt has made progress, not when it has only connected. */
  reset(): void {
    this.#stepMs = this.#options.minMs;
  }
}
