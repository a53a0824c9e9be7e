import { createLog, type Log } from "@kpng/process/log.ts";

// Tools for tests of the kit and of backends, which wait for events instead of sleeping.

/** A promise that a test resolves or rejects. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
  fail(error: Error): void;
}

export function createGate(): Gate {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  return { opened: promise, open: () => resolve(), fail: reject };
}

/** A queue: one side puts values in, and the other waits for them in order. */
export class Mailbox<T> {
  readonly #values: T[] = [];
  readonly #waiting: ((value: T) => void)[] = [];

  put(value: T): void {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#values.push(value);
    else waiting(value);
  }

  next(): Promise<T> {
    const value = this.#values.shift();
    if (value !== undefined) return Promise.resolve(value);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  get size(): number {
    return this.#values.length;
  }
}

/** A replacement for `waitMs` that resolves at once and records the delays. */
export function createInstantWait(): {
  readonly delaysMs: number[];
  wait(ms: number, signal: AbortSignal): Promise<void>;
} {
  const delaysMs: number[] = [];
  return {
    delaysMs,
    wait: async (ms) => {
      delaysMs.push(ms);
    },
  };
}

/** A log that keeps its lines as objects. */
export function createReadableLog(): { readonly log: Log; readonly lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  return { log: createLog("debug", (line) => lines.push(JSON.parse(line))), lines };
}
