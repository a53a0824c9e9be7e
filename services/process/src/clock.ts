import { waitMs } from "./wait.ts";

/**
 * Injectable clock. Code that waits takes it as a parameter, so that a test can pass a {@link ManualClock} and need not
 * wait: the sync loop of backends, for example, and the watcher when it drains connections. Separate from
 * `wallClockMs`, which is for times that travel between processes.
 */
export interface Clock {
  /** Monotonic time in milliseconds, from an arbitrary start. */
  readonly nowMs: () => number;
  /** Resolves after the given milliseconds, or as soon as the signal aborts; never rejects. */
  readonly wait: typeof waitMs;
}

/** The real clock: `performance.now` and timers of Node.js. */
export const realClock: Clock = { nowMs: () => performance.now(), wait: waitMs };
