import { setTimeout as sleep } from "node:timers/promises";

/** Resolves after `ms` milliseconds, or at once when `signal` aborts; never rejects. */
export async function waitMs(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}

/** Resolves when `signal` aborts. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

/** Something that can be waited for again and again: all who wait are woken by the next `wake`. */
export class Wakeup {
  #waiting = new Set<() => void>();
  /** Those that were woken last; who is cancelled before its turn comes is not called. */
  #woken = new Set<() => void>();

  wake(): void {
    const woken = this.#waiting;
    this.#waiting = new Set();
    this.#woken = woken;
    for (const resolve of woken) resolve();
    woken.clear();
  }

  /** Resolves at the next `wake`, or when `signal` aborts; nothing is left behind either way. */
  wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#waiting.add(done);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  /** Calls back once, at the next `wake`, unless cancelled; a callback that waits already waits once. */
  call(callback: () => void): void {
    this.#waiting.add(callback);
  }

  cancel(callback: () => void): void {
    this.#waiting.delete(callback);
    this.#woken.delete(callback);
  }

  /** How many wait now. */
  get waitingCount(): number {
    return this.#waiting.size;
  }
}
