/**
 * Admits as many streams as can get their first batch within `maxWaitMs`, at the current cost per stream.
 *
 * *Bound:* `maxWaitMs` divided by the mean time between two completed first batches.
 */
export class AdmissionRoom {
  readonly #maxWaitMs: number;
  readonly #nowMs: () => number;
  readonly #random: () => number;
  /** When each stream was last written to; undefined before the first write. */
  readonly #tickets = new Map<AdmissionTicket, number | undefined>();
  #costMs = firstGuessMs;
  /** When the measurement of the next first batch began. */
  #sinceMs = 0;
  /** The time at which the last refused client will retry. */
  #lastRetryMs = 0;

  constructor({ maxWaitMs, nowMs = () => performance.now(), random = Math.random }: RoomOptions) {
    this.#maxWaitMs = maxWaitMs;
    this.#nowMs = nowMs;
    this.#random = random;
  }

  /** Number of streams that wait for the end of their first batch. */
  get size(): number {
    return this.#tickets.size;
  }

  enter(): Entry {
    const nowMs = this.#nowMs();
    const limit = Math.max(minTickets, this.#maxWaitMs / this.#costMs);
    if (this.#maxWaitMs > 0 && this.#tickets.size >= limit) this.#expireStalled(nowMs);
    if (this.#maxWaitMs > 0 && this.#tickets.size >= limit)
      return { kind: "full", pushbackMs: this.#pushbackMs(nowMs) };
    if (this.#tickets.size === 0) this.#sinceMs = nowMs;
    const ticket: AdmissionTicket = {
      wrote: () => {
        if (this.#tickets.has(ticket)) this.#tickets.set(ticket, this.#nowMs());
      },
      done: () => {
        if (this.#tickets.delete(ticket)) this.#measure(this.#nowMs());
      },
      close: () => {
        this.#tickets.delete(ticket);
      },
    };
    this.#tickets.set(ticket, undefined);
    return { kind: "admitted", ticket };
  }

  #measure(nowMs: number): void {
    const costMs = Math.min(maxCostMs, nowMs - this.#sinceMs);
    this.#sinceMs = nowMs;
    this.#costMs = Math.max(minCostMs, this.#costMs + (costMs - this.#costMs) * newestShare);
  }

  #expireStalled(nowMs: number): void {
    for (const [ticket, wroteMs] of this.#tickets) {
      if (wroteMs !== undefined && nowMs - wroteMs > stalledMs) this.#tickets.delete(ticket);
    }
  }

  /**
   * Spreads retries at the rate at which streams are served, from the time when half of the waiting ones are done, and
   * varies each by half.
   */
  #pushbackMs(nowMs: number): number {
    const soonestMs = nowMs + Math.min(maxPushbackMs, (this.#tickets.size * this.#costMs) / 2);
    this.#lastRetryMs = Math.min(Math.max(this.#lastRetryMs + this.#costMs, soonestMs), nowMs + maxPushbackMs);
    return Math.min(maxPushbackMs, (this.#lastRetryMs - nowMs) * (0.5 + this.#random()));
  }
}

/** The admission of one stream, until its first batch is complete or the stream ends. */
export interface AdmissionTicket {
  /** Call after each write of the first batch. */
  wrote(): void;
  /** Call when the first batch is complete. */
  done(): void;
  /** Call when the stream ends, whether or not its first batch is complete. */
  close(): void;
}

/** The result of asking for admission. */
export type Entry =
  | { readonly kind: "admitted"; readonly ticket: AdmissionTicket }
  | { readonly kind: "full"; readonly pushbackMs: number };

export interface RoomOptions {
  /** Maximum time that an admitted stream should wait for its first batch, in milliseconds; 0 for no limit. */
  readonly maxWaitMs: number;
  /** Injectable clock, in milliseconds. Default performance.now. */
  readonly nowMs?: (() => number) | undefined;
  /** Returns a random number in [0, 1). Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/** Number of streams that are admitted whatever they cost, so that one slow reader cannot block all others. */
const minTickets = 16;

/**
 * Assumed cost of a first batch before any was measured, in milliseconds. It is low on purpose: a client that retries
 * too early is refused once more, but a client that retries too late has waited for nothing.
 */
const firstGuessMs = 5;

/** Minimum cost of a first batch, in milliseconds. It bounds the number of waiting streams. */
const minCostMs = 1;

/**
 * Maximum cost of a first batch, in milliseconds. Longer times measure a source that has not listed yet, or slow
 * readers.
 */
const maxCostMs = 1_000;

/** Weight of the newest measurement in the mean cost. */
const newestShare = 0.1;

/** Maximum pushback, in milliseconds. */
const maxPushbackMs = 60_000;

/** A ticket expires when its reader has read nothing for this time, in milliseconds. */
const stalledMs = 10_000;
