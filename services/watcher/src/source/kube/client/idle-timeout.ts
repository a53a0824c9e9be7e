/**
 * Aborts its signal when nothing has moved for a while, or when the signal that it was made from aborts.
 *
 * Timers run on the monotonic clock, so a wall clock that is set changes nothing.
 */
export class ProgressDeadline {
  readonly ms: number;
  readonly signal: AbortSignal;
  readonly #timer: NodeJS.Timeout;
  readonly #silence = new AbortController();

  constructor(ms: number, parent: AbortSignal) {
    this.ms = ms;
    this.signal = AbortSignal.any([parent, this.#silence.signal]);
    this.#timer = setTimeout(() => this.#silence.abort(), ms);
  }

  /** True if it was the silence that aborted the signal. */
  get hasExpired(): boolean {
    return this.#silence.signal.aborted;
  }

  /** Something moved: starts again. */
  moved(): void {
    this.#timer.refresh();
  }

  /** Must be called in the end: the timer keeps the process alive. */
  end(): void {
    clearTimeout(this.#timer);
  }
}
