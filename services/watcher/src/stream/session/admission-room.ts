/** A stream that was admitted. */
export interface AdmissionTicket {
  /** A piece of its first batch is on its way. */
  wrote(): void;
  /** Its first batch is complete. */
  done(): void;
  /** The stream is over, whether its first batch is complete or not. */
  close(): void;
}

export type Entry =
  | { readonly kind: "admitted"; readonly ticket: AdmissionTicket }
  | { readonly kind: "full"; readonly pushbackMs: number };

export interface RoomOptions {
  /** Longest time that the last one who is admitted should have to wait, in milliseconds; 0 for no limit. */
  readonly maxWaitMs: number;
  /** A clock in milliseconds. Default performance.now. */
  readonly nowMs?: (() => number) | undefined;
  /** Returns a number from 0 up to but not including 1. Default Math.random. */
  readonly random?: (() => number) | undefined;
}

/** So many are admitted whatever they cost: else one slow reader could keep everybody out. */
const minTickets = 16;

/**
 * What one first batch is taken to cost before any was written, in milliseconds. Rather too little: who was told to come
 * too early is told again, who was told to come too late is missed by nobody.
 */
const firstGuessMs = 5;

/** Least that one is taken to cost, in milliseconds: it bounds how many wait, however fast they are served. */
const minCostMs = 1;

/** What one can count at most, in milliseconds: in front of a source that has not listed yet, or slow readers, time says nothing. */
const maxCostMs = 1_000;

/** Weight of the newest among the measured costs. */
const newestShare = 0.1;

/** Longest time that anybody is told to wait, in milliseconds. */
const maxPushbackMs = 60_000;

/** A place is free again when its reader has taken nothing for so long, in milliseconds. */
const stalledMs = 10_000;

/**
 * Room for as many streams as can have their first batch within a time, by what the last ones took.
 *
 * *Bound:* the time divided by the mean distance between two first batches that were completed.
 */
export class AdmissionRoom {
  readonly #maxWaitMs: number;
  readonly #nowMs: () => number;
  readonly #random: () => number;
  /** By when a piece of it was last written; undefined while it waits for us. */
  readonly #tickets = new Map<AdmissionTicket, number | undefined>();
  #costMs = firstGuessMs;
  /** Since when the room has worked at the next one that will be complete. */
  #sinceMs = 0;
  /** For when the last one was told to come. */
  #toldMs = 0;

  constructor({ maxWaitMs, nowMs = () => performance.now(), random = Math.random }: RoomOptions) {
    this.#maxWaitMs = maxWaitMs;
    this.#nowMs = nowMs;
    this.#random = random;
  }

  /** How many wait. */
  get size(): number {
    return this.#tickets.size;
  }

  enter(): Entry {
    const nowMs = this.#nowMs();
    const limit = Math.max(minTickets, this.#maxWaitMs / this.#costMs);
    if (this.#maxWaitMs > 0 && this.#tickets.size >= limit) this.#forgetStalled(nowMs);
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

  #forgetStalled(nowMs: number): void {
    for (const [ticket, wroteMs] of this.#tickets) {
      if (wroteMs !== undefined && nowMs - wroteMs > stalledMs) this.#tickets.delete(ticket);
    }
  }

  /** One after the other as fast as they can be served, beginning when there may be room, and varied by half. */
  #pushbackMs(nowMs: number): number {
    const soonestMs = nowMs + Math.min(maxPushbackMs, (this.#tickets.size * this.#costMs) / 2);
    this.#toldMs = Math.min(Math.max(this.#toldMs + this.#costMs, soonestMs), nowMs + maxPushbackMs);
    return Math.min(maxPushbackMs, (this.#toldMs - nowMs) * (0.5 + this.#random()));
  }
}
