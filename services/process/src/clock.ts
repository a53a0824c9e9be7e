import { waitMs } from "./wait.ts";

/** Injectable clock. */
export interface Clock {
  /** Monotonic time in milliseconds, from an arbitrary start. */
  readonly nowMs: () => number;
  /** Resolves after the given milliseconds, or as soon as the signal aborts; never rejects. */
  readonly wait: typeof waitMs;
}

/** The real clock: `performance.now` and timers of Node.js. */
export const realClock: Clock = { nowMs: () => performance.now(), wait: waitMs };
