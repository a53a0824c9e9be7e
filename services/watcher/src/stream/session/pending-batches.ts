/** A batch that a subscriber was sent and has not acknowledged. */
export interface PendingBatch {
  /** Revision that the subscriber had before; 0 for a whole view. */
  readonly after: number;
  readonly revision: number;
  /** In milliseconds since 1970, with fractions. */
  readonly sentAtMs: number;
}

/** Most of one subscriber; those that never acknowledge would pile up. */
const maxPending = 128;

/** Numbers that are kept for a batch. */
const width = 3;

/**
 * The batches of one subscriber that wait for an acknowledgement, the oldest first, and how many of them it has received.
 *
 * They are numbers in one array, which is used again and again: there is a batch for each subscriber and change, and
 * what is kept for each is what the garbage collector must move.
 *
 * *Bound:* 128; of more, the two oldest become one, which counts as sent when the first was, and goes over the revisions
 * between the two as well, of which nothing was told.
 */
export class PendingBatches {
  /** *Shape:* for each batch after, revision, sentAtMs; a ring once it is full. */
  readonly #numbers: number[] = [];
  #first = 0;
  #count = 0;
  #receivedCount = 0;

  get count(): number {
    return this.#count;
  }

  /** Undefined if there is none. */
  get oldestSentAtMs(): number | undefined {
    return this.#count === 0 ? undefined : this.#at(0, 2);
  }

  add(after: number, revision: number, sentAtMs: number): void {
    if (this.#count === maxPending) this.#joinOldest();
    const place = ((this.#first + this.#count) % maxPending) * width;
    // The first round fills the places in their order.
    this.#numbers[place] = after;
    this.#numbers[place + 1] = revision;
    this.#numbers[place + 2] = sentAtMs;
    this.#count += 1;
  }

  /** Marks the next one that was not received as received, and returns it; undefined if it is beyond the revision. */
  receiveNext(upTo: number): PendingBatch | undefined {
    const index = this.#receivedCount;
    if (index === this.#count || this.#at(index, 1) > upTo) return undefined;
    this.#receivedCount += 1;
    return this.#get(index);
  }

  /** Takes the oldest out; undefined if it is beyond the revision. */
  takeOldest(upTo: number): PendingBatch | undefined {
    if (this.#count === 0 || this.#at(0, 1) > upTo) return undefined;
    const oldest = this.#get(0);
    this.#dropOldest();
    return oldest;
  }

  /** Those up to a revision, the oldest first. */
  *upTo(revision: number): Iterable<PendingBatch> {
    for (let index = 0; index < this.#count && this.#at(index, 1) <= revision; index += 1) yield this.#get(index);
  }

  /** Those that were not received. */
  *unreceived(): Iterable<PendingBatch> {
    for (let index = this.#receivedCount; index < this.#count; index += 1) yield this.#get(index);
  }

  #get(index: number): PendingBatch {
    return { after: this.#at(index, 0), revision: this.#at(index, 1), sentAtMs: this.#at(index, 2) };
  }

  #at(index: number, field: 0 | 1 | 2): number {
    return this.#numbers[((this.#first + index) % maxPending) * width + field] ?? 0;
  }

  #dropOldest(): void {
    this.#count -= 1;
    this.#receivedCount = Math.max(0, this.#receivedCount - 1);
    // Most often none is left: then the first place is used again, and the others need not be made.
    this.#first = this.#count === 0 ? 0 : (this.#first + 1) % maxPending;
  }

  #joinOldest(): void {
    const [after, sentAtMs, isReceived] = [this.#at(0, 0), this.#at(0, 2), this.#receivedCount > 0];
    this.#dropOldest();
    // What the changes after a whole view go over stays known.
    if (after !== 0) this.#numbers[this.#first * width] = after;
    this.#numbers[this.#first * width + 2] = sentAtMs;
    if (isReceived) this.#receivedCount = Math.max(1, this.#receivedCount);
  }
}
