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
 * Shortest duration of a working stream, in milliseconds. After a shorter one the delay doubles, even if the server
 * asks for an immediate retry: otherwise two servers could send a client back and forth without a pause.
 */
const minStreamMs = 1_000;

/**
 * Longest delay while no process listens at the address, in milliseconds, unless `minMs` is longer.
 *
 * Longer delays spare a server that answers, since each new stream may cost it a whole view. A refused connect costs
 * half a millisecond of the client's CPU and nothing elsewhere, and changes wait until the client is back.
 */
const absentMaxMs = 3_000;

/**
 * Decides how long a backend or relay waits before it opens its next stream to a watcher: as long as the server asks
 * (gRFC A6), otherwise a random part of a delay that doubles. Random, because the cause usually ended thousands of
 * other streams at the same moment.
 *
 * While nothing listens at the address, the delay is at most three seconds.
 */
export class Reconnect {
  readonly #backoff: Backoff;
  /** While nothing listens at the address. */
  readonly #absent: Backoff;
  readonly #nowMs: () => number;
  #openedAtMs = 0;
  #hasProgress = false;

  constructor(options: BackoffOptions = {}, nowMs: () => number = () => performance.now()) {
    this.#backoff = new Backoff({ jitter: 1, ...options });
    const { minMs = 800 } = options;
    this.#absent = new Backoff({ jitter: 0.5, ...options, minMs, maxMs: Math.max(minMs, absentMaxMs) });
    this.#nowMs = nowMs;
  }

  /** Must be called when a stream is opened. */
  opening(): void {
    this.#openedAtMs = this.#nowMs();
    this.#hasProgress = false;
  }

  /** Must be called when the stream has delivered something: delays start at `minMs` again. */
  progressed(): void {
    this.#hasProgress = true;
    this.#backoff.reset();
    this.#absent.reset();
  }

  /** Must be called when the stream has ended, with its error if there was one. Returns what to do next. */
  ended(error?: unknown): StreamEnd {
    if (hasNoListener(error)) return { kind: "lost", delayMs: this.#absent.nextMs() };
    const pushbackMs = pushbackOf(error);
    if (pushbackMs === undefined) return { kind: "lost", delayMs: this.#backoff.nextMs() };
    const isWorking = this.#hasProgress && this.#nowMs() - this.#openedAtMs >= minStreamMs;
    const delayMs = pushbackMs > 0 || isWorking ? pushbackMs : this.#backoff.nextMs();
    return { kind: this.#hasProgress ? "moved" : "refused", delayMs };
  }
}

/** True if an error, or one of its causes, is a connect() that was refused, or that found no unix socket. */
function hasNoListener(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (!("syscall" in cause) || cause.syscall !== "connect") continue;
    // The error of a unix socket has no port: without permission, too, only its owner can help.
    return !("port" in cause) || ("code" in cause && cause.code === "ECONNREFUSED");
  }
  return false;
}

/** Trailer that tells a client how long to wait before it retries, in milliseconds. Source: gRFC A6. */
const trailer = "grpc-retry-pushback-ms";

/**
 * Longest delay that a watcher asks for and a client accepts, in milliseconds. 5 000 refused clients then return 50
 * times a second, which takes 5 % of a core. A faulty server must not keep a node away indefinitely.
 */
const maxPushbackMs = 150_000;

/**
 * Returns an error UNAVAILABLE that asks the client to retry after `pushbackMs` milliseconds; 0 means immediately. A
 * busy watcher rejects a stream with it.
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

/**
 * Response header of a watcher whose state may be out of date, because its own server does not answer. Its value is
 * "1". A node that finds it looks for another watcher.
 */
export const staleHeader = "kpng-stale";
