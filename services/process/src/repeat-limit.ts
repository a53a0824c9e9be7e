/** Options of a {@link RepeatLimit}. */
export interface RepeatLimitOptions {
  /** Events with the same key that pass within a window. Default 5. */
  readonly burst?: number | undefined;
  /** Windows that may be open at the same time. Default 1 000. */
  readonly maxKeys?: number | undefined;
  /** Calls `callback` once after `ms` milliseconds. Default: a timer that does not keep the process alive. */
  readonly schedule?: ((callback: () => void, ms: number) => void) | undefined;
}

/** Length of a window, which begins with the first event of a key, in milliseconds. */
const windowMs = 60_000;

interface Window {
  passed: number;
  heldBack: number;
  /** Reports the newest event that was held back, with the number of those held back. */
  report: (heldBackCount: number) => void;
}

/**
 * Limits repeated events, such as log lines: within a window the first few events of a key pass, and at its end the
 * newest of the others is reported with their number. `createLog` uses one, so that a recurring fault does not fill the
 * disk. Separate from the log, because `Refusals`, `StartLimits` and `TokenChecker` of a watcher have one too.
 *
 * *Bound:* `maxKeys` windows; beyond that, the oldest window ends early.
 */
export class RepeatLimit {
  readonly #burst: number;
  readonly #maxKeys: number;
  readonly #schedule: (callback: () => void, ms: number) => void;
  readonly #windows = new Map<string, Window>();

  constructor({ burst = 5, maxKeys = 1_000, schedule = later }: RepeatLimitOptions = {}) {
    this.#burst = burst;
    this.#maxKeys = maxKeys;
    this.#schedule = schedule;
  }

  /**
   * Calls `report` with 0 at once, or, if it is the newest event of its key that is held back, at the end of the window
   * with the number of events held back.
   */
  add(key: string, report: (heldBackCount: number) => void): void {
    const window = this.#windows.get(key) ?? this.#open(key, report);
    if (window.passed < this.#burst) {
      window.passed += 1;
      report(0);
      return;
    }
    window.heldBack += 1;
    window.report = report;
  }

  #open(key: string, report: Window["report"]): Window {
    for (const oldest of this.#windows.keys()) {
      if (this.#windows.size < this.#maxKeys) break;
      this.#end(oldest, this.#windows.get(oldest));
    }
    const window: Window = { passed: 0, heldBack: 0, report };
    this.#windows.set(key, window);
    this.#schedule(() => this.#end(key, window), windowMs);
    return window;
  }

  #end(key: string, window: Window | undefined): void {
    if (window === undefined || this.#windows.get(key) !== window) return;
    this.#windows.delete(key);
    if (window.heldBack > 0) window.report(window.heldBack);
  }
}

function later(callback: () => void, ms: number): void {
  setTimeout(callback, ms).unref();
}
