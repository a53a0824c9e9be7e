/**
 * A rate with a burst: a client may send `burst` units at once, and `perSecond` after that. Pure, except for its state.
 *
 * `Admission` has one for the calls of a connection, `makeFastWatch` one for the bytes of its requests, and
 * `RequestLimit` one for the requests of a stream. Separate, because these differ in what they do with a client that
 * sends more.
 */
export class Rate {
  readonly #burst: number;
  readonly #perSecond: number;
  /** When the client may send a whole burst again, in milliseconds. */
  #restedAtMs = 0;

  constructor(burst: number, perSecond: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
  }

  /** Counts units. Returns how long the client should rest, in milliseconds; 0 if it is within the rate. */
  add(count: number, nowMs: number): number {
    this.#restedAtMs = Math.max(this.#restedAtMs, nowMs) + (count * 1_000) / this.#perSecond;
    return this.restMs(nowMs);
  }

  /** Returns how long the client should still rest, in milliseconds; 0 if it may send. */
  restMs(nowMs: number): number {
    return Math.max(0, this.#restedAtMs - nowMs - (this.#burst * 1_000) / this.#perSecond);
  }
}
