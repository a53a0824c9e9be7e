/** Reports that a stream may send at once. */
const burst = 100;

/**
 * Time per report after that, in milliseconds. Our nodes send an acknowledgement every 100 ms at most (see
 * `ackIntervalFor`), and a traffic report every 2 s.
 */
const intervalMs = 50;

/**
 * Limits the reports of one stream: acknowledgements and traffic reports, which ask for no batch. Outstanding batches
 * limit all other requests. Beyond the limit, the stream takes no requests for a while, and the client's data waits in
 * its flow-control window.
 *
 * Each `WatchStream` has one. Separate from it, because it only counts and waits.
 */
export class ReportLimit {
  readonly #onRoom: () => void;
  /** When the client may send a whole burst again, in milliseconds of `performance.now`. */
  #restedAtMs = 0;
  #timer: NodeJS.Timeout | undefined;

  /** Calls `onRoom` when there is room again. */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
  }

  get isFull(): boolean {
    return this.#timer !== undefined;
  }

  /** Counts a report. */
  add(): void {
    const nowMs = performance.now();
    this.#restedAtMs = Math.max(this.#restedAtMs, nowMs) + intervalMs;
    const waitMs = this.#restedAtMs - nowMs - burst * intervalMs;
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
