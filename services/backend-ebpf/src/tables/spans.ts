/** A range of free numbers. */
interface Span {
  first: number;
  length: number;
}

/**
 * Free numbers of a range, e.g. unused elements of an array: takes the first gap that is long enough, and joins what is
 * given back with its neighbours. `FamilyTables` has one each for slots, elements and ids of source ranges. Pure;
 * O(gaps) for each call.
 */
export class Spans {
  /** Ascending; no two touch. */
  readonly #free: Span[];

  constructor(first: number, length: number) {
    this.#free = [{ first, length }];
  }

  /** Takes `length` numbers in a row. Returns the first of them; undefined if there is no such gap. */
  take(length: number): number | undefined {
    const index = this.#free.findIndex((span) => span.length >= length);
    const span = this.#free[index];
    if (span === undefined) return undefined;
    const { first } = span;
    span.first += length;
    span.length -= length;
    if (span.length === 0) this.#free.splice(index, 1);
    return first;
  }

  /** Takes certain numbers. Returns false, and takes none, unless all of them are free. */
  reserve(first: number, length: number): boolean {
    const index = this.#after(first) - 1;
    const span = this.#free[index];
    if (span === undefined || first + length > span.first + span.length) return false;
    const rest = { first: first + length, length: span.first + span.length - first - length };
    span.length = first - span.first;
    this.#free.splice(index, 1, ...[span, rest].filter((one) => one.length > 0));
    return true;
  }

  /** Gives back numbers that were taken. */
  give(first: number, length: number): void {
    const index = this.#after(first);
    const before = this.#free[index - 1];
    const after = this.#free[index];
    const joinsAfter = after !== undefined && first + length === after.first;
    if (before !== undefined && before.first + before.length === first) {
      before.length += length + (joinsAfter ? after.length : 0);
      if (joinsAfter) this.#free.splice(index, 1);
    } else if (joinsAfter) {
      after.first = first;
      after.length += length;
    } else this.#free.splice(index, 0, { first, length });
  }

  /** Index of the first gap that begins after `first`. */
  #after(first: number): number {
    let [low, high] = [0, this.#free.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#free[middle]?.first ?? 0) <= first) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
