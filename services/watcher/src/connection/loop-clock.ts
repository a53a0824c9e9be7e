/**
 * Clock for timeouts of clients: it stops while the event loop is blocked.
 *
 * After a turn of the event loop that took ten seconds, Node.js runs the timers that became due before it reads
 * sockets. A timeout would then end clients whose data has already arrived. This clock counts at most two ticks per
 * turn, and sockets are read between any two ticks.
 *
 * *Bound:* one entry per pending callback. *Cost:* some nanoseconds per entry and tick.
 */
export class LoopClock {
  readonly #tickMs: number;
  readonly #deadlines = new Set<Deadline>();
  #nowMs = 0;
  #lastMs = 0;
  #interval: NodeJS.Timeout | undefined;

  /** `tickMs` is the resolution, in milliseconds. The clock does not keep the process alive. */
  constructor(tickMs: number) {
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

  /** Drops all pending callbacks. */
  stop(): void {
    clearInterval(this.#interval);
    this.#deadlines.clear();
  }

  /** Calls back once after `ms` milliseconds of this clock, up to a tick late. Returns a function that cancels this. */
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

/** A pending callback. */
interface Deadline {
  readonly atMs: number;
  readonly callback: () => void;
}
