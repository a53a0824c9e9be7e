import type { Clock } from "@kpng/process/clock.ts";

/**
 * Keeps a minimum time between two syncs of a `SyncLoop`, from the end of one to the start of the next, as kube-proxy's
 * BoundedFrequencyRunner does. Separate from `SyncLoop`, because it knows nothing of updates.
 *
 * Measured from the start, a sync longer than the interval would be followed by the next one at once, and the node
 * would do nothing else.
 */
export class Pacer {
  readonly #minMs: number;
  readonly #clock: Clock;
  #endedMs: number | undefined;

  constructor(minMs: number, clock: Clock) {
    this.#minMs = minMs;
    this.#clock = clock;
  }

  /** Must be called at the end of each sync. */
  ended(): void {
    this.#endedMs = this.#clock.nowMs();
  }

  /** Resolves when the next sync may start, or when `signal` aborts. */
  async waitForMin(signal: AbortSignal): Promise<void> {
    const endedMs = this.#endedMs;
    if (endedMs === undefined || this.#minMs === 0) return;
    const restMs = endedMs + this.#minMs - this.#clock.nowMs();
    if (restMs > 0) await this.#clock.wait(restMs, signal);
  }
}
