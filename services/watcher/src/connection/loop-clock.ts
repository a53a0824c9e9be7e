/** A deadline that has not passed. */
interface Deadline {
  readonly atMs: number;
  readonly callback: () => void;
}

/**
 * A clock for judging peers: it stands while the event loop is held up.
 *
 * After a turn of the loop that took ten seconds, timers of Node.js that became due meanwhile run before the sockets are
 * read: what a peer has sent in time would count as missing. Of each such turn this clock counts two ticks at most, and
 * between any two ticks the sockets are read.
 *
 * *Bound:* one entry for each deadline; a tick costs some nanoseconds for each.
 */
export class LoopClock {
  readonly #tickMs: number;
  readonly #deadlines = new Set<Deadline>();
  #nowMs = 0;
  #lastMs = 0;
  #interval: NodeJS.Timeout | undefined;

  /** `tickMs` is how exact it is. It does not keep the process alive. */
  constructor(tickMs = 1_000) {
    this.#tickMs = tickMs;
  }

  start(): void {
    this.#lastMs = performance.now();
    this.#interval = setInterval(() => {
      const nowMs = performance.now();
      const elapsedMs = nowMs - this.#lastMs;
      this.#lastMs = nowMs;
      this.#advance(Math.min(elapsedMs, 2 * this.#tickMs));
    }, this.#tickMs).unref();
  }

  /** Nothing is called back any more. */
  stop(): void {
    clearInterval(this.#interval);
    this.#deadlines.clear();
  }

  /** Calls back once, `ms` milliseconds of this clock from now or up to a tick later; the result takes that back. */
  after(ms: number, callback: () => void): () => void {
    const deadline = { atMs: this.#nowMs + ms, callback };
    this.#deadlines.add(deadline);
    return () => this.#deadlines.delete(deadline);
  }

  #advance(ms: number): void {
    this.#nowMs += ms;
    for (const deadline of this.#deadlines) {
      if (deadline.atMs > this.#nowMs) continue;
      this.#deadlines.delete(deadline);
      deadline.callback();
    }
  }
}
