/**
 * Runs at most `max` pieces of work at a time; further ones wait in order. Separate, because `TokenChecker` uses two:
 * one for verifications and one for reviews.
 *
 * *Bound:* none for the waiting pieces: the caller limits them.
 */
export class ConcurrencyLimit {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Number of pieces that wait. */
  get waitingCount(): number {
    return this.#waiting.length;
  }

  /** Runs `work` once it is its turn, and returns its result. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#max) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#running += 1;
    try {
      return await work();
    } finally {
      // A waiting piece takes over the place of this one.
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}
