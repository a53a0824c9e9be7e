/**
 * Histogram of durations with exponential buckets, and the exact maximum. Change records hold one for each stage.
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

  /** The longest duration, exact; 0 without measurements. */
  get maxMs(): number {
    return this.#maxMs;
  }

  /** Adds a duration. Negative ones, which occur when a clock is set back, count as 0. */
  add(ms: number): void {
    const bucket = ms <= firstMs ? 0 : Math.ceil(Math.log2(ms / firstMs) * perFactorTwo);
    const index = bucket < bucketCount ? bucket : bucketCount - 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#count += 1;
    if (ms > this.#maxMs) this.#maxMs = ms;
  }

  /** Returns the percentile `part`, from 0 to 1, in milliseconds; 0 without measurements. */
  percentileMs(part: number): number {
    const wanted = Math.ceil(this.#count * part);
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
/** Ratio of bucket bounds: percentiles are at most 15 % off up to 12 minutes, where the last bucket starts. */
const growth = 1.3;
const perFactorTwo = 1 / Math.log2(growth);
