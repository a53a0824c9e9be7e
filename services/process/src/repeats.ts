export interface RepeatsOptions {
  /** How many of the same pass in a window. Default 5. */
  readonly burst?: number | undefined;
  /** From the first of them on, in milliseconds. Default 60 000. */
  readonly windowMs?: number | undefined;
  /** How many different ones are known at a time. Default 1 000. */
  readonly maxKeys?: number | undefined;
  /** Calls back once after so many milliseconds. Default a timer that does not keep the process alive. */
  readonly schedule?: ((callback: () => void, ms: number) => void) | undefined;
}

interface Window {
  passed: number;
  heldBack: number;
  /** Says the last one that was held back, with how many they were. */
  tell: (heldBackCount: number) => void;
}

/**
 * Holds back what is said again and again: a few pass, and at the end of the window the last of the others with their
 * number.
 *
 * *Bound:* `maxKeys` windows; beyond that the oldest ends early.
 */
export class Repeats {
  readonly #burst: number;
  readonly #windowMs: number;
  readonly #maxKeys: number;
  readonly #schedule: (callback: () => void, ms: number) => void;
  readonly #windows = new Map<string, Window>();

  constructor({ burst = 5, windowMs = 60_000, maxKeys = 1_000, schedule = later }: RepeatsOptions = {}) {
    this.#burst = burst;
    this.#windowMs = windowMs;
    this.#maxKeys = maxKeys;
    this.#schedule = schedule;
  }

  /** Calls `tell`, now with 0 or at the end of the window with how many of the same `key` were held back. */
  say(key: string, tell: (heldBackCount: number) => void): void {
    const window = this.#windows.get(key) ?? this.#open(key, tell);
    if (window.passed < this.#burst) {
      window.passed += 1;
      tell(0);
      return;
    }
    window.heldBack += 1;
    window.tell = tell;
  }

  #open(key: string, tell: Window["tell"]): Window {
    for (const oldest of this.#windows.keys()) {
      if (this.#windows.size < this.#maxKeys) break;
      this.#end(oldest, this.#windows.get(oldest));
    }
    const window: Window = { passed: 0, heldBack: 0, tell };
    this.#windows.set(key, window);
    this.#schedule(() => this.#end(key, window), this.#windowMs);
    return window;
  }

  #end(key: string, window: Window | undefined): void {
    if (window === undefined || this.#windows.get(key) !== window) return;
    this.#windows.delete(key);
    if (window.heldBack > 0) window.tell(window.heldBack);
  }
}

function later(callback: () => void, ms: number): void {
  setTimeout(callback, ms).unref();
}
