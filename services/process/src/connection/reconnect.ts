import { Code, ConnectError } from "@connectrpc/connect";
import { Backoff, type BackoffOptions } from "../clock.ts";

/** Why a stream ended, and the delay before the next one. */
interface StreamEnd {
  /**
   * - lost: the stream broke, or could not be opened.
   * - refused: the server is busy and asked the client to retry later.
   * - moved: the server ended a working stream and asked the client to reconnect, usually to another replica.
   */
  readonly kind: "lost" | "refused" | "moved";
  /** Delay before the next stream, in milliseconds. */
  readonly delayMs: number;
}

/**
 * Minimum time for which a stream has worked, in milliseconds. After a shorter one the delay is that of a lost stream,
 * even if the server asks for an immediate retry; otherwise two servers could send a client back and forth without a
 * pause.
 */
const minStreamMs = 1_000;

/**
 * Maximum delay while no process listens at the address, in milliseconds, unless `minMs` is longer. Changes wait
 * for the client to reconnect, and a refused connection costs only half a millisecond of the client's CPU time.
 */
const absentMaxMs = 3_000;

/**
 * Decides how long a backend or relay waits before it opens its next stream to a watcher: the time that the server asks
 * for (gRFC A6) or, if it asks for none, a random part of a delay that doubles. The delay is random because the cause
 * usually ended thousands of other streams at the same moment.
 *
 * Delays start at `minMs` again after a stream that has worked for `maxMs`. A first batch alone is not enough: a watcher
 * that fails after each one would send all its nodes the whole view once a second.
 */
export class Reconnect {
  readonly #backoff: Backoff;
  /** Backoff while nothing listens at the address. */
  readonly #absent: Backoff;
  readonly #maxMs: number;
  readonly #nowMs: () => number;
  /** Time at which the stream delivered its first batch; undefined before. */
  #workingSinceMs: number | undefined;

  constructor(options: BackoffOptions = {}, nowMs: () => number = () => performance.now()) {
    this.#backoff = new Backoff({ jitter: 1, ...options });
    const { minMs = 800, maxMs = 30_000 } = options;
    this.#maxMs = maxMs;
    this.#absent = new Backoff({ jitter: 0.5, ...options, minMs, maxMs: Math.max(minMs, absentMaxMs) });
    this.#nowMs = nowMs;
  }

  /** Must be called when a stream is opened. */
  opening(): void {
    this.#workingSinceMs = undefined;
  }

  /** Must be called when the stream has delivered a batch. */
  progressed(): void {
    this.#workingSinceMs ??= this.#nowMs();
  }

  /** Must be called when the stream has ended; with its error, if any. Returns what to do next. */
  ended(error?: unknown): StreamEnd {
    const since = this.#workingSinceMs;
    const workedMs = since === undefined ? 0 : this.#nowMs() - since;
    if (workedMs >= this.#maxMs) {
      this.#backoff.reset();
      this.#absent.reset();
    }
    if (hasNoListener(error)) return { kind: "lost", delayMs: this.#absent.nextMs() };
    const pushbackMs = pushbackOf(error);
    if (pushbackMs === undefined) return { kind: "lost", delayMs: this.#backoff.nextMs() };
    const delayMs = pushbackMs > 0 || workedMs >= minStreamMs ? pushbackMs : this.#backoff.nextMs();
    return { kind: since === undefined ? "refused" : "moved", delayMs };
  }
}

/** True if an error, or one of its causes, comes from a connect() that was refused or found no unix socket. */
function hasNoListener(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (!("syscall" in cause) || cause.syscall !== "connect") continue;
    // An error without a port comes from a unix socket. All its errors count, even a missing permission, because only
    // the socket's owner can remove the cause.
    return !("port" in cause) || ("code" in cause && cause.code === "ECONNREFUSED");
  }
  return false;
}

/** Trailer that tells a client how long to wait before it retries, in milliseconds. Source: gRFC A6. */
const trailer = "grpc-retry-pushback-ms";

/**
 * Maximum delay that a watcher asks for and a client accepts, in milliseconds, so that no faulty server keeps a node
 * away. With this delay, 5 000 refused clients cause 50 attempts per second, which take 5 % of a core.
 */
const maxPushbackMs = 150_000;

/**
 * Returns an UNAVAILABLE error that asks the client to retry after `pushbackMs` milliseconds; 0 means immediately. A
 * busy watcher rejects streams with this error.
 */
export function retryLaterError(message: string, pushbackMs: number): ConnectError {
  return new ConnectError(message, Code.Unavailable, { [trailer]: String(Math.max(0, Math.round(pushbackMs))) });
}

/** Returns the error of a stream that ended with status OK: its trailer, too, may ask for a delay. */
export function endError(trailers: Headers): ConnectError {
  return new ConnectError("the watcher ended the stream", Code.Unavailable, trailers);
}

/**
 * Returns the delay that the server asks for in an error or one of its causes, in milliseconds, at most 150 000;
 * undefined if it does not ask for one.
 *
 * According to gRFC A6, a negative or invalid value asks the client not to retry. Our clients must retry, and do so
 * after the maximum delay.
 */
export function pushbackOf(error: unknown): number | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const text = cause instanceof ConnectError ? cause.metadata.get(trailer) : null;
    if (text === null) continue;
    return /^\d{1,9}$/.test(text) ? Math.min(Number(text), maxPushbackMs) : maxPushbackMs;
  }
  return undefined;
}

/** Response header, with the value "1", of a watcher whose own server does not answer: its state may be out of date. */
export const staleHeader = "kpng-stale";
