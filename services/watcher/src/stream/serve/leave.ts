import { type ContextKey, createContextKey } from "@connectrpc/connect";

/**
 * For handlers: aborts, with the error that the client is to get, when it is asked to open its next call elsewhere. Who
 * waits ends with that error, who writes a batch writes it first. It never aborts where there is no connection.
 */
export const leaveKey: ContextKey<AbortSignal> = createContextKey(new AbortController().signal, {
  description: "kpng leave",
});

/** The same items; ends early, and without waiting for the one that is awaited, when `signal` aborts. */
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
