import type { Clock } from "../clock.ts";

/** Clock whose time changes only when a test advances it. */
export class ManualClock implements Clock {
  #nowMs = 0;
  readonly #timers = new Set<{ readonly atMs: number; readonly ring: () => void }>();

  readonly nowMs = (): number => this.#nowMs;

  /** See `waitMs`. */
  readonly wait = (ms: number, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (signal.aborted) return resolve();
      const timer = {
        atMs: this.#nowMs + ms,
        ring: () => {
          this.#timers.delete(timer);
          resolve();
        },
      };
      this.#timers.add(timer);
      signal.addEventListener("abort", timer.ring, { once: true });
    });

  /** True while somebody waits for this clock. */
  get isAwaited(): boolean {
    return this.#timers.size > 0;
  }

  /** Advances time, and resolves when the work that this caused has settled. */
  async advance(ms: number): Promise<void> {
    await this.settle();
    const untilMs = this.#nowMs + ms;
    for (;;) {
      const next = [...this.#timers].sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined || next.atMs > untilMs) break;
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.ring();
      await this.settle();
    }
    this.#nowMs = untilMs;
    await this.settle();
  }

  /** Lets pending work run that does not wait for time. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
  }
}
