import { monotonicMs } from "./monotonic.ts";

/** Of what one stream has applied, when it says so: as the kit does, not more often than the watcher wants to hear. */
export class HollowAcks {
  readonly #intervalMs: number;
  #untold: { readonly revision: number; readonly atMs: number }[] = [];
  #nextMs = Number.NEGATIVE_INFINITY;
  #isWaiting = false;

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** A revision is applied; `tell` is called now or later with all that is to be told. */
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
