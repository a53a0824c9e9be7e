import type { Clock } from "@kpng/process/clock.ts";
import type { Wakeup } from "@kpng/process/wait.ts";

/**
 * When the next sync may begin and when it must, counted from the end of the last one, as kube-proxy's
 * BoundedFrequencyRunner counts.
 *
 * From the end, because a sync that takes longer than the interval would else be followed by the next one at once, and
 * the node would do nothing else.
 */
export class Pacer {
  readonly #minMs: number;
  readonly #maxMs: number;
  readonly #clock: Clock;
  #endedMs: number | undefined;
  #fullEndedMs: number | undefined;

  constructor(minMs: number, maxMs: number, clock: Clock) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#clock = clock;
  }

  ended(isFullSuccess: boolean): void {
    this.#endedMs = this.#clock.nowMs();
    if (isFullSuccess) this.#fullEndedMs = this.#endedMs;
  }

  /** True if everything has to be looked at again. */
  get isFullDue(): boolean {
    return this.#fullInMs() <= 0;
  }

  /** Resolves when the next sync may begin. */
  async waitForMin(signal: AbortSignal): Promise<void> {
    const endedMs = this.#endedMs;
    if (endedMs === undefined || this.#minMs === 0) return;
    const restMs = endedMs + this.#minMs - this.#clock.nowMs();
    if (restMs > 0) await this.#clock.wait(restMs, signal);
  }

  /** Resolves when something arrives or a full sync is due. */
  async waitForWork(arrived: Wakeup, signal: AbortSignal): Promise<void> {
    const restMs = this.#fullInMs();
    if (restMs === Number.POSITIVE_INFINITY) return arrived.wait(signal);
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    await Promise.race([arrived.wait(either), this.#clock.wait(restMs, either)]);
    over.abort();
  }

  #fullInMs(): number {
    if (this.#fullEndedMs === undefined || this.#maxMs === 0) return Number.POSITIVE_INFINITY;
    return Math.max(0, this.#fullEndedMs + this.#maxMs - this.#clock.nowMs());
  }
}
