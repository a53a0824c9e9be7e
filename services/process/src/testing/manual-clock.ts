import type { Clock } from "../clock.ts";

/** Time that stands still until a test moves it. */
export class ManualClock implements Clock {
  #nowMs = 0;
  readonly #timers = new Set<{ readonly atMs: number; readonly ring: () => void }>();

  readonly nowMs = (): number => this.#nowMs;

  /** See waitMs. */
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

  /** Moves time on; returns when all that this set off has come to rest. */
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

  /** Lets everything run that needs no time. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
  }
}
