import type { Clock } from "./clock.ts";
import type { Wakeup } from "./wait.ts";

/**
 * Wakes a {@link Wakeup} at a given time, for loops that wait for events or for the time of their next work. `SyncLoop`
 * of backend-kit has one. It is in this package, because it knows nothing about syncs.
 *
 * It keeps the timer of the earliest time until it rings, instead of a timer for each wait: most waits end with an
 * event, and a timer that is cancelled each time costs more than one that rings in vain. So a loop may be woken when
 * nothing is due.
 *
 * *Bound:* one timer for each call with a time before that of the next alarm, until the latest of these times.
 */
export class Alarm {
  readonly #wakeup: Wakeup;
  readonly #clock: Clock;
  #atMs = Number.POSITIVE_INFINITY;

  constructor(wakeup: Wakeup, clock: Clock) {
    this.#wakeup = wakeup;
    this.#clock = clock;
  }

  /** Wakes at `atMs` of the clock or before; never for an infinite time. Wakes at once when `signal` aborts. */
  set(atMs: number, signal: AbortSignal): void {
    if (atMs >= this.#atMs) return;
    this.#atMs = atMs;
    void this.#clock.wait(Math.max(0, atMs - this.#clock.nowMs()), signal).then(() => {
      // An earlier alarm may have replaced this one.
      if (this.#atMs === atMs) this.#atMs = Number.POSITIVE_INFINITY;
      this.#wakeup.wake();
    });
  }
}
