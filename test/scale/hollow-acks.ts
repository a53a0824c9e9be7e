import { monotonicMs } from "./monotonic.ts";

/** Schedules the acknowledgements of one stream, as the kit does: not more often than the watcher allows. */
export class HollowAcks {
  readonly #intervalMs: number;
  #untold: { readonly revision: number; readonly atMs: number }[] = [];
  #nextMs = Number.NEGATIVE_INFINITY;
  #isWaiting = false;

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** Records an applied revision. `tell` is called now or later with all revisions to acknowledge. */
  applied(
    revision: number,
    tell: (all: readonly { readonly revision: number; readonly ageMs: number }[]) => void,
  ): void {
    this.#untold.push({ revision, atMs: monotonicMs() });
    if (this.#isWaiting) return;
    const say = (): void => {
      const nowMs = monotonicMs();
      const all = this.#untold.map((one) => ({ revision: one.revision, ageMs: nowMs - one.atMs }));
      this.#untold = [];
      this.#isWaiting = false;
      this.#nextMs = nowMs + this.#intervalMs * (1 + Math.random() / 2);
      tell(all.slice(-33));
    };
    const delayMs = this.#nextMs - monotonicMs();
    if (delayMs <= 0) {
      say();
      return;
    }
    this.#isWaiting = true;
    setTimeout(say, delayMs);
  }
}
