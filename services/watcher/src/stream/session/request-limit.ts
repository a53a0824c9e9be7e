import { Rate } from "../../connection/rate.ts";

/**
 * Requests that a stream may send at once, and per second after that. Our nodes send an acknowledgement every 100 ms at
 * most (see `ackIntervalFor`), a traffic report every 2 s, and a request for every 16 batches.
 */
const [burst, perSecond] = [100, 20];

/**
 * Limits the requests of one stream that must be decoded: reports, and requests for batches that differ from the one
 * before. Beyond the limit, the stream takes no requests for a while, and the client's data waits in its flow-control
 * window. Equal requests, as KPNG's clients send, cost little; outstanding batches limit them.
 *
 * Each `WatchStream` has one. Separate from it, because it only counts and waits.
 */
export class RequestLimit {
  readonly #onRoom: () => void;
  readonly #rate = new Rate(burst, perSecond);
  #timer: NodeJS.Timeout | undefined;

  /** Calls `onRoom` when there is room again. */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
  }

  get isFull(): boolean {
    return this.#timer !== undefined;
  }

  /** Counts a request. */
  add(): void {
    const waitMs = this.#rate.add(1, performance.now());
    if (waitMs > 0) this.#timer ??= setTimeout(() => this.#rest(), waitMs).unref();
  }

  /** The stream is over: `onRoom` is not called any more. */
  close(): void {
    clearTimeout(this.#timer);
  }

  #rest(): void {
    this.#timer = undefined;
    this.#onRoom();
  }
}
