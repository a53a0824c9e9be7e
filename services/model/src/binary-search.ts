/**
 * Returns the lowest index from 0 to `count` for which `isBefore` is false; `count` if it is true for all. The watcher
 * and `SortedMap` of backend-kit share it, to search sorted lists.
 *
 * `isBefore` must be true for all indexes below the result and false from there on. O(log count) calls.
 */
export function lowerBound(count: number, isBefore: (index: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isBefore(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}
