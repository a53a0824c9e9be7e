import { type Difference, differenceKey } from "./difference.ts";

/** How the differences that are told changed with a look. */
export interface SettledChange {
  readonly appeared: readonly Difference[];
  readonly gone: readonly Difference[];
  /** All that are told now. */
  readonly present: readonly Difference[];
}

/**
 * Tells differences that stay from those of the moment in which one proxy has a change and the other does not yet.
 *
 * A difference is told once it has been the same for `settleMs`. It is gone with the first look that does not see it.
 */
export class SettledDifferences {
  readonly #settleMs: number;
  readonly #sinceMs = new Map<string, number>();
  #told = new Map<string, Difference>();

  constructor(settleMs: number) {
    this.#settleMs = settleMs;
  }

  /** Takes what a look saw, at `nowMs` of any clock that goes steadily. */
  take(seen: readonly Difference[], nowMs: number): SettledChange {
    const byKey = new Map(seen.map((difference) => [differenceKey(difference), difference]));
    for (const key of this.#sinceMs.keys()) if (!byKey.has(key)) this.#sinceMs.delete(key);
    const told = new Map<string, Difference>();
    for (const [key, difference] of byKey) {
      const sinceMs = this.#sinceMs.get(key) ?? nowMs;
      this.#sinceMs.set(key, sinceMs);
      if (nowMs - sinceMs >= this.#settleMs) told.set(key, difference);
    }
    const appeared = [...told].flatMap(([key, difference]) => (this.#told.has(key) ? [] : [difference]));
    const gone = [...this.#told].flatMap(([key, difference]) => (told.has(key) ? [] : [difference]));
    this.#told = told;
    return { appeared, gone, present: [...told.values()] };
  }

  /** True if something was seen that is not told yet: look again soon. */
  get isSettling(): boolean {
    return this.#sinceMs.size > this.#told.size;
  }
}
