import { createLog, type Log } from "@kpng/process/log.ts";

/** Tools of tests that go step by step instead of sleeping. */

/** A promise that is settled from outside. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
  fail(error: Error): void;
}

export function createGate(): Gate {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  return { opened: promise, open: () => resolve(), fail: reject };
}

/** Values that are put in on one side and waited for on the other, in order. */
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

/** A wait that takes no time and notes how long it would have been. */
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

/** A log whose lines can be read. */
export function createReadableLog(): { readonly log: Log; readonly lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  return { log: createLog("debug", (line) => lines.push(JSON.parse(line))), lines };
}
