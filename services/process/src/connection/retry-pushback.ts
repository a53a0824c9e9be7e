import { Code, ConnectError } from "@connectrpc/connect";

/** Trailer that tells a client how long to wait before it retries, in milliseconds. Source: gRFC A6. */
const trailer = "grpc-retry-pushback-ms";

/**
 * Longest delay that a watcher asks for and a client accepts, in milliseconds. 5 000 refused clients then return 50
 * times a second, which takes 5 % of a core. A faulty server must not keep a node away indefinitely.
 */
export const maxPushbackMs = 150_000;

/**
 * Returns an error UNAVAILABLE that asks the client to retry after `pushbackMs` milliseconds; 0 means immediately. A
 * busy watcher rejects a stream with it. Both ends are in this file: watchers make the error, and clients read the
 * delay with `pushbackOf`.
 */
export function retryLaterError(message: string, pushbackMs: number): ConnectError {
  return new ConnectError(message, Code.Unavailable, { [trailer]: String(Math.max(0, Math.round(pushbackMs))) });
}

/**
 * Returns the delay that the server asks for in an error or one of its causes, in milliseconds, at most 150 000;
 * undefined if it does not ask for one.
 *
 * By gRFC A6 a negative or invalid value asks the client not to retry. Our clients must retry, and do so after the
 * longest delay.
 */
export function pushbackOf(error: unknown): number | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const text = cause instanceof ConnectError ? cause.metadata.get(trailer) : null;
    if (text === null) continue;
    return /^\d{1,9}$/.test(text) ? Math.min(Number(text), maxPushbackMs) : maxPushbackMs;
  }
  return undefined;
}
