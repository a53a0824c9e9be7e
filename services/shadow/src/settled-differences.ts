import { type Difference, differenceKey } from "./difference.ts";

/** Change of the reported differences by a comparison. */
export interface SettledChange {
  readonly appeared: readonly Difference[];
  readonly gone: readonly Difference[];
  /** All differences that are reported now. */
  readonly present: readonly Difference[];
}

/**
 * Filters out short differences, which exist while one proxy has received a change and the other has not. `shadowTask`
 * passes it the differences of each comparison and reports the result. Separate from `shadowTask`, because it has no
 * clock, so a test can pass any times.
 *
 * A difference is reported once it has been the same for `settleMs`. It is gone with the first comparison without it.
 */
export class SettledDifferences {
  readonly #settleMs: number;
  readonly #sinceMs = new Map<string, number>();
  #reported = new Map<string, Difference>();

  constructor(settleMs: number) {
    this.#settleMs = settleMs;
  }

  /** Takes the differences of a comparison, at `nowMs` of any monotonic clock. */
  take(seen: readonly Difference[], nowMs: number): SettledChange {
    const byKey = new Map(seen.map((difference) => [differenceKey(difference), difference]));
    for (const key of this.#sinceMs.keys()) if (!byKey.has(key)) this.#sinceMs.delete(key);
    const reported = new Map<string, Difference>();
    for (const [key, difference] of byKey) {
      const sinceMs = this.#sinceMs.get(key) ?? nowMs;
      this.#sinceMs.set(key, sinceMs);
      if (nowMs - sinceMs >= this.#settleMs) reported.set(key, difference);
    }
    const appeared = [...reported].flatMap(([key, difference]) => (this.#reported.has(key) ? [] : [difference]));
    const gone = [...this.#reported].flatMap(([key, difference]) => (reported.has(key) ? [] : [difference]));
    this.#reported = reported;
    return { appeared, gone, present: [...reported.values()] };
  }

  /** True if a difference was found that is not reported yet: compare again soon. */
  get isSettling(): boolean {
    return this.#sinceMs.size > this.#reported.size;
  }
}
