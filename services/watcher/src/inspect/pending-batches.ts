/** A batch that a subscriber was sent and has not acknowledged. */
export interface PendingBatch {
  readonly after: number;
  readonly revision: number;
  readonly sentAtMs: number;
  isReceived: boolean;
}

type Slot = { -readonly [K in keyof PendingBatch]: PendingBatch[K] };

function refill(slot: Slot, after: number, revision: number, sentAtMs: number): void {
  slot.after = after;
  slot.revision = revision;
  slot.sentAtMs = sentAtMs;
  slot.isReceived = false;
}

/** Most of one subscriber; those that never acknowledge would pile up. */
const maxPending = 16;

/**
 * The batches of one subscriber that wait for an acknowledgement, the oldest first. Their objects are used again and
 * again: there is a batch for each subscriber and change.
 *
 * *Bound:* the newest 16.
 */
export class PendingBatches {
  readonly #slots: Slot[] = [];
  #count = 0;

  add(after: number, revision: number, sentAtMs: number): void {
    if (this.#count === maxPending) this.#dropOldest();
    const slot = this.#slots[this.#count];
    if (slot === undefined) this.#slots.push({ after, revision, sentAtMs, isReceived: false });
    else refill(slot, after, revision, sentAtMs);
    this.#count += 1;
  }

  /** Keeps those for which `keeps` is true; it is called for each. */
  keep(keeps: (batch: PendingBatch) => boolean): void {
    let kept = 0;
    for (let index = 0; index < this.#count; index += 1) {
      const slot = this.#slots[index];
      if (slot === undefined || !keeps(slot)) continue;
      this.#swap(kept, index);
      kept += 1;
    }
    this.#count = kept;
  }

  #dropOldest(): void {
    let isOldest = true;
    this.keep(() => {
      const isKept = !isOldest;
      isOldest = false;
      return isKept;
    });
  }

  #swap(one: number, other: number): void {
    const [a, b] = [this.#slots[one], this.#slots[other]];
    if (one === other || a === undefined || b === undefined) return;
    this.#slots[one] = b;
    this.#slots[other] = a;
  }
}
