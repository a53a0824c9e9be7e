import { waitMs } from "./wait.ts";

/** A clock that is passed as a parameter, so that a test can pass a {@link ManualClock} and need not wait. */
export interface Clock {
  /** Monotonic time in milliseconds, from an arbitrary start. */
  readonly nowMs: () => number;
  /** Resolves after the given milliseconds, or as soon as the signal aborts; never rejects. */
  readonly wait: typeof waitMs;
}

/** The real clock: `performance.now` and timers of Node.js. */
export const realClock: Clock = { nowMs: () => performance.now(), wait: waitMs };

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
