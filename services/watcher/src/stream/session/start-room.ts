import { maxPushbackMs } from "@kpng/process/connection/retry-pushback.ts";

/** Number of completed first batches whose intervals count. */
const sampleCount = 16;

/** Fewer intervals say too little: the first one often includes the wait for the first list of the source. */
const minSampleCount = 4;

/**
 * Minimum time between two retries while no first batch is completed, in milliseconds. These retries are refused again,
 * and a refusal with its connection takes a millisecond, so they cost at most 5 % of a core.
 */
const minSpacingMs = 20;

/** Time without a completed first batch after which retries are not expected to find room, in milliseconds. */
const unservedMs = 1_000;

/** Minimum pushback, in milliseconds, before the random variation. */
const minPushbackMs = 1_000;

/** A ticket expires when its reader has read nothing for this time, in milliseconds. */
const stalledMs = 10_000;

/**
 * Counts the streams that wait for their first batch, and refuses further ones only when there is no memory for them. A
 * waiting client costs less than a client that connects again.
 *
 * *Bound:* `maxWaiting` streams.
 *
 * `StartLimits` has one for each kind of first batch. Separate from it, so that the counting needs no metrics.
 */
export class StartRoom {
  readonly #maxWaiting: number;
  readonly #nowMs: () => number;
  readonly #random: () => number;
  /** When each stream was last written to; undefined before the first write. */
  readonly #tickets = new Map<StartTicket, number | undefined>();
  readonly #intervalsMs: number[] = [];
  /** When the current interval began. */
  #sinceMs = 0;
  /** The time at which the last refused client will retry. */
  #lastRetryMs = 0;

  constructor({ maxWaiting, nowMs = () => performance.now(), random = Math.random }: RoomOptions) {
    this.#maxWaiting = maxWaiting;
    this.#nowMs = nowMs;
    this.#random = random;
  }

  /** Number of streams that wait for the end of their first batch. */
  get size(): number {
    return this.#tickets.size;
  }

  enter(): Entry {
    const nowMs = this.#nowMs();
    if (this.#isFull) this.#expireStalled(nowMs);
    if (this.#isFull) return { kind: "full", pushbackMs: this.#pushbackMs(nowMs) };
    if (this.#tickets.size === 0) this.#sinceMs = nowMs;
    // The streams that were refused so far have had their turn, or find room whenever they return.
    if (this.#tickets.size <= this.#maxWaiting / 2) this.#lastRetryMs = 0;
    const ticket: StartTicket = {
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
    return { kind: "waits", ticket };
  }

  get #isFull(): boolean {
    return this.#maxWaiting > 0 && this.#tickets.size >= this.#maxWaiting;
  }

  #measure(nowMs: number): void {
    this.#intervalsMs.push(nowMs - this.#sinceMs);
    if (this.#intervalsMs.length > sampleCount) this.#intervalsMs.shift();
    this.#sinceMs = nowMs;
  }

  /**
   * The median: the first view also builds what all views share, and a view that waited for a list of the source or
   * for a slow reader says nothing about the next one.
   */
  get #intervalMs(): number {
    if (this.#intervalsMs.length < minSampleCount) return minSpacingMs;
    const sorted = this.#intervalsMs.toSorted((a, b) => a - b);
    return sorted[sorted.length >> 1] ?? minSpacingMs;
  }

  #expireStalled(nowMs: number): void {
    for (const [ticket, wroteMs] of this.#tickets) {
      if (wroteMs !== undefined && nowMs - wroteMs > stalledMs) this.#tickets.delete(ticket);
    }
  }

  /**
   * Spreads retries at the rate at which streams are served, from the time when half of the waiting ones are done, and
   * varies each by half: most retries then find room.
   */
  #pushbackMs(nowMs: number): number {
    const intervalMs = this.#intervalMs;
    const isServing = this.#intervalsMs.length >= minSampleCount && nowMs - this.#sinceMs < unservedMs;
    const spacingMs = isServing ? intervalMs : Math.max(minSpacingMs, intervalMs);
    const soonestMs = Math.max(minPushbackMs, (this.#tickets.size * intervalMs) / 2);
    const nextMs = this.#lastRetryMs + spacingMs - nowMs;
    // Varied by half, it is at most the maximum: with a cap after that, many clients would retry at the same moment.
    const pushbackMs = Math.min(maxPushbackMs / 1.5, Math.max(soonestMs, nextMs));
    this.#lastRetryMs = nowMs + pushbackMs;
    return pushbackMs * (0.5 + this.#random());
  }
}

/** The place of one stream in a {@link StartRoom}, until its first batch is complete or the stream ends. */
export interface StartTicket {
  /** Call after each write of the first batch. */
  wrote(): void;
  /** Call when the first batch is complete. */
  done(): void;
  /** Call when the stream ends, whether or not its first batch is complete. */
  close(): void;
}

/** The result of asking for a place. */
export type Entry =
  | { readonly kind: "waits"; readonly ticket: StartTicket }
  | { readonly kind: "full"; readonly pushbackMs: number };

interface RoomOptions {
  /** Maximum number of streams that wait for their first batch; 0 for no limit. */
  readonly maxWaiting: number;
  /** Injectable clock, in milliseconds. Default performance.now. */
  readonly nowMs?: (() => number) | undefined;
  /** Returns a random number in [0, 1). Default Math.random. */
  readonly random?: (() => number) | undefined;
}
