const bucketCount = 64;
/** Upper bound of the first bucket, in milliseconds. */
const firstMs = 0.05;
/** So a percentile is at most 15 % off, up to the 12 minutes at which the last bucket ends; it has all that is longer. */
const growth = 1.3;
const perFactorTwo = 1 / Math.log2(growth);

/**
 * How a time is spread over many measurements: counts in buckets that grow by 30 % each, and the longest one as it was.
 *
 * *Bound:* 64 numbers.
 */
export class Distribution {
  readonly #counts = new Uint32Array(bucketCount);
  #count = 0;
  #maxMs = 0;

  get count(): number {
    return this.#count;
  }

  /** The longest time, exact; 0 if none was measured. */
  get maxMs(): number {
    return this.#maxMs;
  }

  /** A negative time, which clocks that are set can give, counts as none. */
  add(ms: number): void {
    const bucket = ms <= firstMs ? 0 : Math.ceil(Math.log2(ms / firstMs) * perFactorTwo);
    const index = bucket < bucketCount ? bucket : bucketCount - 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#count += 1;
    if (ms > this.#maxMs) this.#maxMs = ms;
  }

  /** The time that `part` of the measurements, from 0 to 1, did not exceed, in milliseconds; 0 if there are none. */
  percentileMs(part: number): number {
    const wanted = Math.ceil(this.#count * part);
    if (wanted === this.#count) return this.#maxMs;
    let seen = 0;
    for (const [index, count] of this.#counts.entries()) {
      seen += count;
      // The middle of the bucket, as ratios go.
      if (seen >= wanted && count > 0) return Math.min(firstMs * growth ** (index - 0.5), this.#maxMs);
    }
    return 0;
  }
}
