/** Length and randomness of the delays between retries. Reconnects, lists and syncs that fail are retried with them. */
export interface BackoffOptions {
  /** First delay, in milliseconds. Default 800; at least 1, because doubling 0 gives 0. */
  readonly minMs?: number | undefined;
  /** Longest delay, in milliseconds. Default 30 000. */
  readonly maxMs?: number | undefined;
  /** Random share of each delay, 0 to 1. Default 0.5: a delay lasts between half and all of its nominal length. */
  readonly jitter?: number | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * Delays between retries: they double from `minMs` to `maxMs`. Each is shortened at random, so that thousands of nodes
 * that lost the same peer do not reconnect at the same moment. The sync loop of backends, reconnects to a watcher and
 * the reflectors of the API server use it. It only computes delays; the caller waits.
 */
export class Backoff {
  readonly #minMs: number;
  readonly #maxMs: number;
  readonly #jitter: number;
  readonly #random: () => number;
  #stepMs: number;

  constructor(options: BackoffOptions = {}) {
    this.#minMs = Math.max(1, options.minMs ?? 800);
    this.#maxMs = options.maxMs ?? 30_000;
    this.#jitter = options.jitter ?? 0.5;
    this.#random = options.random ?? Math.random;
    this.#stepMs = this.#minMs;
  }

  /** Returns the delay before the next attempt, in milliseconds. */
  nextMs(): number {
    const stepMs = this.#stepMs;
    this.#stepMs = Math.min(stepMs * 2, this.#maxMs);
    return Math.round(stepMs * (1 - this.#jitter * this.#random()));
  }

  /** Starts again at `minMs`. Call it when an attempt has made progress, not when it has only connected. */
  reset(): void {
    this.#stepMs = this.#minMs;
  }
}
