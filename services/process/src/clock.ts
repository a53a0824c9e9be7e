import { waitMs } from "./wait.ts";

/** Time, so that a test can be it. */
export interface Clock {
  /** Milliseconds since any fixed moment; never goes back. */
  readonly nowMs: () => number;
  /** Resolves after so many milliseconds, or at once when the signal aborts; never rejects. */
  readonly wait: typeof waitMs;
}

/** The machine's: performance.now and its timers. */
export const realClock: Clock = { nowMs: () => performance.now(), wait: waitMs };
