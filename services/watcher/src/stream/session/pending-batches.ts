/**
 * The batches of one subscriber that wait for an acknowledgement, oldest first, and how many of them it has received.
 *
 * Batches are numbers in a ring buffer: there is one for each subscriber and change, and the garbage collector would
 * have to move objects.
 *
 * *Bound:* 128. Beyond that, the two oldest batches are merged: the result has the time of the first, and covers also
 * the revisions between the two, in which nothing changed for the subscriber.
 *
 * Each `Subscriber` has one. Separate from it, so that only this class knows how the numbers are laid out.
 */
export class PendingBatches {
  /** *Shape:* after, revision, sentAtMs for each batch; a ring once it is full. */
  readonly #numbers: number[] = [];
  #first = 0;
  #count = 0;
  #receivedCount = 0;

  get count(): number {
    return this.#count;
  }

  get oldestSentAtMs(): number | undefined {
    return this.#count === 0 ? undefined : this.#at(0, 2);
  }

  add(after: number, revision: number, sentAtMs: number): void {
    if (this.#count === maxPending) this.#mergeOldest();
    const slot = ((this.#first + this.#count) % maxPending) * width;
    // The first pass appends to the array, so it never has holes.
    this.#numbers[slot] = after;
    this.#numbers[slot + 1] = revision;
    this.#numbers[slot + 2] = sentAtMs;
    this.#count += 1;
  }

  /** Marks the oldest batch that was not received as received and returns it; undefined if its revision is newer. */
  receiveNext(upTo: number): PendingBatch | undefined {
    const index = this.#receivedCount;
    if (index === this.#count || this.#at(index, 1) > upTo) return undefined;
    this.#receivedCount += 1;
    return this.#get(index);
  }

  /** Removes and returns the oldest batch; undefined if its revision is newer than `upTo`. */
  takeOldest(upTo: number): PendingBatch | undefined {
    if (this.#count === 0 || this.#at(0, 1) > upTo) return undefined;
    const oldest = this.#get(0);
    this.#dropOldest();
    return oldest;
  }

  /** The batches up to a revision, oldest first. */
  *upTo(revision: number): Iterable<PendingBatch> {
    for (let index = 0; index < this.#count && this.#at(index, 1) <= revision; index += 1) yield this.#get(index);
  }

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
    // Usually none is left; then the first slot is reused, and the array need not grow.
    this.#first = this.#count === 0 ? 0 : (this.#first + 1) % maxPending;
  }

  #mergeOldest(): void {
    const [after, sentAtMs, isReceived] = [this.#at(0, 0), this.#at(0, 2), this.#receivedCount > 0];
    this.#dropOldest();
    // A whole view (0) covers no changes, so the merged batch keeps the start of the other one.
    if (after !== 0) this.#numbers[this.#first * width] = after;
    this.#numbers[this.#first * width + 2] = sentAtMs;
    if (isReceived) this.#receivedCount = Math.max(1, this.#receivedCount);
  }
}

/** A batch that was sent and not acknowledged. */
export interface PendingBatch {
  /** The revision that the subscriber had before; 0 for a whole view. */
  readonly after: number;
  readonly revision: number;
  /** In milliseconds since 1970, with fractions. */
  readonly sentAtMs: number;
}

/** Maximum number for one subscriber: a subscriber that never acknowledges must not use more memory. */
const maxPending = 128;

/** Array elements per batch. */
const width = 3;
