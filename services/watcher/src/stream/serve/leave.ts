import { type ContextKey, createContextKey } from "@connectrpc/connect";

/**
 * Context value for handlers: a signal that aborts when the client should open its next call on another connection. Its
 * reason is the error for the client. A handler that waits ends with this error; a handler that writes a batch
 * completes the batch first. The default, for calls without a connection, never aborts.
 *
 * `makeRequestHandler` sets it for each call that the Connect library serves. `makeFastWatch` gets the same signal
 * directly.
 *
 * A file of its own, because services in several folders read it.
 */
export const leaveKey: ContextKey<AbortSignal> = createContextKey(new AbortController().signal, {
  description: "kpng leave",
});

/**
 * Yields the same items. When `signal` aborts, ends without waiting for the next item. `addReflection` uses it for the
 * requests of a call.
 */
export function endWhen<T>(signal: AbortSignal, items: AsyncIterable<T>): AsyncIterable<T> {
  const iterator = items[Symbol.asyncIterator]();
  const done = { done: true, value: undefined } as const;
  return {
    [Symbol.asyncIterator]: () => ({
      next: () =>
        new Promise<IteratorResult<T>>((resolve, reject) => {
          if (signal.aborted) return resolve(done);
          const end = (): void => resolve(done);
          signal.addEventListener("abort", end, { once: true });
          iterator
            .next()
            .then(resolve, reject)
            .finally(() => signal.removeEventListener("abort", end));
        }),
    }),
  };
}
