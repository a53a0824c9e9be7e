import { Backoff, type BackoffOptions } from "../backoff.ts";
import { pushbackOf } from "./retry-pushback.ts";

/** Why a stream ended, and when the next one is to be opened. */
export interface StreamEnd {
  /**
   * - lost: it broke, or could not be opened.
   * - refused: the server is busy and said when to come again.
   * - moved: it was in order, and the server asked to go on elsewhere.
   */
  readonly kind: "lost" | "refused" | "moved";
  readonly delayMs: number;
}

/** A stream that lasted less than this was not in order, whatever its end says: else two could go round without a pause. */
const orderlyMs = 1_000;

/**
 * Longest delay while nobody serves the unix socket that is asked, in milliseconds, unless `minMs` is longer.
 *
 * A long delay, and chance in it, keep thousands of nodes from meeting one server at once. On a socket of this machine
 * there are a few backends, and a connect that fails costs half a millisecond of CPU; what a long delay costs is that all
 * changes wait for as long after the server is back.
 */
const localMaxMs = 1_000;

/**
 * When to open a stream again: when the server says (gRFC A6), else after a random part of a delay that doubles, because
 * whatever ended this stream has most often ended thousands of others in the same moment.
 *
 * A unix socket that nobody serves is tried again each second. One that is served and whose stream breaks is not: the
 * server may have made a whole view for it, and would again.
 */
export class Reconnect {
  readonly #backoff: Backoff;
  readonly #local: Backoff;
  readonly #nowMs: () => number;
  #openedAtMs = 0;
  #hasProgress = false;

  constructor(options: BackoffOptions = {}, nowMs: () => number = () => performance.now()) {
    this.#backoff = new Backoff({ jitter: 1, ...options });
    const { minMs = localMaxMs } = options;
    this.#local = new Backoff({ minMs, maxMs: Math.max(minMs, localMaxMs), jitter: 0 });
    this.#nowMs = nowMs;
  }

  opening(): void {
    this.#openedAtMs = this.#nowMs();
    this.#hasProgress = false;
  }

  /** The stream brought something. */
  progressed(): void {
    this.#hasProgress = true;
    this.#backoff.reset();
    this.#local.reset();
  }

  /** `error` is what the stream ended with; undefined for one that ended without any. */
  ended(error?: unknown): StreamEnd {
    if (isSocketUnserved(error)) return { kind: "lost", delayMs: this.#local.nextMs() };
    const pushbackMs = pushbackOf(error);
    if (pushbackMs === undefined) return { kind: "lost", delayMs: this.#backoff.nextMs() };
    const isOrderly = this.#hasProgress && this.#nowMs() - this.#openedAtMs >= orderlyMs;
    const delayMs = pushbackMs > 0 || isOrderly ? pushbackMs : this.#backoff.nextMs();
    return { kind: this.#hasProgress ? "moved" : "refused", delayMs };
  }
}

/**
 * True if the connect() to a unix socket failed: there is no file, nobody listens, or it may not be opened. An error that
 * wraps the system's is looked into. Such an error names a path as address, and has no port.
 */
function isSocketUnserved(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if ("syscall" in cause && cause.syscall === "connect") return "address" in cause && !("port" in cause);
  }
  return false;
}
