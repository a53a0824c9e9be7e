import { Backoff, type BackoffOptions } from "./backoff.ts";
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
 * When to open a stream again: when the server says (gRFC A6), else after a random part of a delay that doubles, because
 * whatever ended this stream has most often ended thousands of others in the same moment.
 */
export class Reconnect {
  readonly #backoff: Backoff;
  readonly #nowMs: () => number;
  #openedAtMs = 0;
  #hasProgress = false;

  constructor(options: BackoffOptions = {}, nowMs: () => number = () => performance.now()) {
    this.#backoff = new Backoff({ jitter: 1, ...options });
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
  }

  /** `error` is what the stream ended with; undefined for one that ended without any. */
  ended(error?: unknown): StreamEnd {
    const pushbackMs = pushbackOf(error);
    if (pushbackMs === undefined) return { kind: "lost", delayMs: this.#backoff.nextMs() };
    const isOrderly = this.#hasProgress && this.#nowMs() - this.#openedAtMs >= orderlyMs;
    const delayMs = pushbackMs > 0 || isOrderly ? pushbackMs : this.#backoff.nextMs();
    return { kind: this.#hasProgress ? "moved" : "refused", delayMs };
  }
}
