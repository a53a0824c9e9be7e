/**
 * Aborts its signal after a period without progress, or when the parent signal aborts. Timers run on the monotonic
 * clock, so setting the wall clock has no effect.
 *
 * `openResponse` makes one for each request to the API server, to detect dead connections. Separate from it, because a
 * timeout knows nothing about requests.
 */
export class IdleTimeout {
  readonly signal: AbortSignal;
  readonly #timer: NodeJS.Timeout;
  readonly #idle = new AbortController();

  constructor(ms: number, parent: AbortSignal) {
    this.signal = AbortSignal.any([parent, this.#idle.signal]);
    this.#timer = setTimeout(() => this.#idle.abort(), ms);
  }

  /** True if the period passed without progress; false if only the parent aborted. */
  get hasExpired(): boolean {
    return this.#idle.signal.aborted;
  }

  /** Restarts the period. */
  restart(): void {
    this.#timer.refresh();
  }

  /** Stops the timer. Must be called, because the timer keeps the process alive. */
  stop(): void {
    clearTimeout(this.#timer);
  }
}
