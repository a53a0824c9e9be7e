/**
 * Histogram of durations, with exponential buckets, and their exact maximum. `ChangeRecord` holds one for each stage of
 * a change (such as render or commit); `kpng get changes` and `kpng trace` print its percentiles.
 *
 * *Memory:* 64 counters, whatever the number of durations.
 *
 * The metrics of prom-client cannot be used here: they are for all changes together, and this is for one.
 */
export class Distribution {
  readonly #counts = new Uint32Array(bucketCount);
  #count = 0;
  #maxMs = 0;

  get count(): number {
    return this.#count;
  }

  /** The longest duration, exact; 0 without measurements. */
  get maxMs(): number {
    return this.#maxMs;
  }

  /** Adds a duration. Negative ones, which occur when a clock is set back, count as 0. */
  add(ms: number): void {
    const bucket = ms <= firstMs ? 0 : Math.ceil(Math.log2(ms / firstMs) * bucketsPerDoubling);
    const index = bucket < bucketCount ? bucket : bucketCount - 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#count += 1;
    if (ms > this.#maxMs) this.#maxMs = ms;
  }

  /**
   * Returns the percentile for `fraction` (0.5 is the median, 0.99 the 99th percentile), in milliseconds; 0 without
   * measurements.
   */
  percentileMs(fraction: number): number {
    const wanted = Math.ceil(this.#count * fraction);
    if (wanted === this.#count) return this.#maxMs;
    let seen = 0;
    for (const [index, count] of this.#counts.entries()) {
      seen += count;
      // The geometric middle of the bucket.
      if (seen >= wanted && count > 0) return Math.min(firstMs * growth ** (index - 0.5), this.#maxMs);
    }
    return 0;
  }
}

const bucketCount = 64;
/** Upper bound of the first bucket, in milliseconds. */
const firstMs = 0.05;
/**
 * Ratio between the bounds of a bucket. Percentiles are at most 15 % off for durations up to 12.6 minutes. The last
 * bucket starts at 9.7 minutes and also counts all longer durations.
 */
const growth = 1.3;
const bucketsPerDoubling = 1 / Math.log2(growth);
