export interface BackoffOptions {
  /** First delay, in milliseconds. Default 800; at least 1, because nothing doubled stays nothing. */
  readonly minMs?: number | undefined;
  /** Longest delay, in milliseconds. Default 30 000. */
  readonly maxMs?: number | undefined;
  /** What part of a delay is left to chance, 0 to 1. Default 0.5: between half of it and all of it. */
  readonly jitter?: number | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * Delays that double from `minMs` to `maxMs`, each cut by chance, so that thousands of nodes that lost the same peer do
 * not come back at the same moment.
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

  /** Milliseconds to wait before the next try. */
  nextMs(): number {
    const stepMs = this.#stepMs;
    this.#stepMs = Math.min(stepMs * 2, this.#maxMs);
    return Math.round(stepMs * (1 - this.#jitter * this.#random()));
  }

  /** Starts again at `minMs`: call it once a try has made progress, not only connected. */
  reset(): void {
    this.#stepMs = this.#minMs;
  }
}
