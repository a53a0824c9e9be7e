import { Code, ConnectError } from "@connectrpc/connect";

/** Trailer with which a server says how many milliseconds a client shall wait before it comes again: gRFC A6. */
const name = "grpc-retry-pushback-ms";

/** Longest wait that a client obeys, in milliseconds: a server that is wrong must not keep a node away for ever. */
const maxPushbackMs = 60_000;

/** UNAVAILABLE for a call that shall be made again after `pushbackMs` milliseconds; 0 is at once. */
export function comeAgain(message: string, pushbackMs: number): ConnectError {
  return new ConnectError(message, Code.Unavailable, { [name]: String(Math.max(0, Math.round(pushbackMs))) });
}

/**
 * Returns how many milliseconds the server asks to wait, 60 000 at most; undefined if it does not say.
 *
 * A negative number asks not to come again, and what is none counts as such (gRFC A6); who must come again takes it for
 * the longest wait. An error that wraps the call's is looked into.
 */
export function pushbackOf(error: unknown): number | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const text = cause instanceof ConnectError ? cause.metadata.get(name) : null;
    if (text === null) continue;
    return /^\d{1,9}$/.test(text) ? Math.min(Number(text), maxPushbackMs) : maxPushbackMs;
  }
  return undefined;
}
