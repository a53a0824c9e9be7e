import { Code, ConnectError } from "@connectrpc/connect";

/**
 * Ends a stream whose first message does not arrive in time: its watcher hangs or has no view yet, and another watcher
 * may have one. Also ends a stream when the node leaves its watcher.
 *
 * `dialWatchers` creates one for each stream. Separate from it, because the choice of a watcher outlives the stream.
 */
export class AnswerLimit {
  readonly #over = new AbortController();
  readonly #ended = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;
  #error: ConnectError;

  /** `key`: address of the watcher, for the error. */
  constructor(limitMs: number | undefined, key: string) {
    this.#error = asConnectError(new Error(`watcher ${key}: no answer within ${limitMs} ms`));
    if (limitMs !== undefined) this.#timer = setTimeout(() => this.#over.abort(), limitMs).unref();
  }

  /** Returns a signal that aborts when `signal` does, or when the limit ends the stream. */
  with(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#over.signal : AbortSignal.any([signal, this.#over.signal]);
  }

  /** Aborts when the stream has ended. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Ends the stream with an error. */
  readonly end = (error: ConnectError): void => {
    this.#error = error;
    this.#over.abort();
  };

  /** Must be called when the stream has ended. */
  ended(): void {
    this.lift();
    this.#ended.abort();
  }

  /** Lifts the limit, because the stream has begun or ended. */
  lift(): void {
    clearTimeout(this.#timer);
  }

  /** Returns the error that names the limit instead of "canceled", if the limit ended the stream. */
  explain(error: unknown): unknown {
    this.lift();
    return this.#over.signal.aborted ? this.#error : error;
  }
}

/** Returns an error UNAVAILABLE with this cause. */
export function asConnectError(cause: Error): ConnectError {
  return new ConnectError(cause.message, Code.Unavailable, undefined, undefined, cause);
}
