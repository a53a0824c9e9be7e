/** How long work may go on before everything else of the process gets its turn, in milliseconds. */
const sliceMs = 10;

/**
 * Lets much work of many subscribers share the one thread: the work is done in the order in which it was asked for, and
 * after each 10 ms the event loop turns.
 *
 * Without it, whatever becomes due in one turn of the loop runs in that turn: a thousand nodes that come back after a
 * restart, or a client that opens and cancels streams, would stop health probes, pings and all other subscribers for
 * as long as the work of all of them takes, and a cancelled stream would not be known to be cancelled before.
 *
 * *Bound:* one waiting piece of work for each subscriber.
 */
export class Turns {
  readonly #waiting = new Set<() => void>();
  readonly #now: () => number;
  #usedMs = 0;
  #isTurning = false;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Does the work, now or in a later turn; rejects with what it throws. */
  run<T>(work: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const job = (): void => {
        const startMs = this.#now();
        try {
          resolve(work());
        } catch (error) {
          reject(error);
        }
        this.#usedMs += this.#now() - startMs;
      };
      if (this.#waiting.size === 0 && this.#usedMs < sliceMs) job();
      else this.#waiting.add(job);
      this.#turn();
    });
  }

  #turn(): void {
    if (this.#isTurning) return;
    this.#isTurning = true;
    setImmediate(() => {
      this.#isTurning = false;
      this.#usedMs = 0;
      for (const job of this.#waiting) {
        if (this.#usedMs >= sliceMs) break;
        this.#waiting.delete(job);
        job();
      }
      if (this.#waiting.size > 0) this.#turn();
    });
  }
}

/** Those of this process: it has one thread. */
export const turns = new Turns();

/** The same items, each made in a turn; ends early when `signal` aborts. */
export async function* inTurns<T>(items: Iterable<T>, signal: AbortSignal): AsyncIterable<T> {
  const iterator = items[Symbol.iterator]();
  for (;;) {
    const next = await turns.run(() => (signal.aborted ? undefined : iterator.next()));
    if (next === undefined || next.done) return;
    yield next.value;
  }
}
