/** A batch that a subscriber was sent and has not acknowledged. */
export interface PendingBatch {
  after: number;
  revision: number;
  sentAtMs: number;
  isReceived: boolean;
}

/** Most of one subscriber; those that never acknowledge would pile up. */
const maxPending = 128;

/**
 * The batches of one subscriber that wait for an acknowledgement, the oldest first. Their objects are used again and
 * again: there is a batch for each subscriber and change.
 *
 * *Bound:* the newest 128.
 */
export class PendingBatches {
  readonly #slots: PendingBatch[] = [];
  #first = 0;
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Undefined beyond the count; valid until it is dropped. */
  at(index: number): PendingBatch | undefined {
    return index < this.#count ? this.#slots[(this.#first + index) % maxPending] : undefined;
  }

  add(after: number, revision: number, sentAtMs: number): void {
    if (this.#count === maxPending) this.dropOldest();
    const place = (this.#first + this.#count) % maxPending;
    const slot = this.#slots[place];
    if (slot === undefined) {
      // The first round fills the places in their order.
      this.#slots.push({ after, revision, sentAtMs, isReceived: false });
    } else {
      slot.after = after;
      slot.revision = revision;
      slot.sentAtMs = sentAtMs;
      slot.isReceived = false;
    }
    this.#count += 1;
  }

  dropOldest(): void {
    if (this.#count === 0) return;
    this.#count -= 1;
    // Most often none is left: then the first place is used again, and the others need not be made.
    this.#first = this.#count === 0 ? 0 : (this.#first + 1) % maxPending;
  }
}
