import { setTimeout as sleep } from "node:timers/promises";

/**
 * Resolves after `ms` milliseconds, or as soon as `signal` aborts; never rejects. Above 24.8 days (2^31 − 1 ms),
 * Node.js waits only 1 ms.
 */
export async function waitMs(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}

/** Resolves when `signal` aborts. Leaves a listener on `signal` until then, so it is not for loops. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

/**
 * A repeatable event: each call of `wake` calls the callbacks and resolves the promises that are waiting at that time.
 * Callbacks must not throw, because the later ones would be lost, and must not call `wake`.
 */
export class Wakeup {
  #callbacks = new Set<() => void>();
  /** Callbacks of the `wake` in progress; `cancel` removes a callback that has not been called yet. */
  #woken = new Set<() => void>();

  wake(): void {
    const woken = this.#callbacks;
    this.#callbacks = new Set();
    this.#woken = woken;
    for (const resolve of woken) resolve();
    woken.clear();
  }

  /** Resolves at the next `wake`, or when `signal` aborts. Leaves no listener behind in either case. */
  wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#callbacks.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#callbacks.add(done);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  /** Calls `callback` once, at the next `wake`. Adding a callback that is already waiting has no effect. */
  call(callback: () => void): void {
    this.#callbacks.add(callback);
  }

  /** Removes a callback that {@link call} added. */
  cancel(callback: () => void): void {
    this.#callbacks.delete(callback);
    this.#woken.delete(callback);
  }

  /** Number of callbacks and promises that are currently waiting. */
  get waitingCount(): number {
    return this.#callbacks.size;
  }
}
