interface Keyed<K, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): unknown;
}

/** Returns the value at `key`; if there is none, stores the result of `make` first. Values must not be undefined. */
export function getOrMake<K, V>(map: Keyed<K, V>, key: K, make: () => V): V {
  const existing = map.get(key);
  if (existing !== undefined) return existing;
  const made = make();
  map.set(key, made);
  return made;
}

/**
 * Returns the lowest index from 0 to `count` for which `isBefore` is false; `count` if it is true for all. `isBefore`
 * must be true for all indexes below the result and false from there on. O(log count) calls.
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

/**
 * Compares two strings by UTF-16 code units, independent of the locale. For all characters that Kubernetes allows in
 * names, this is the order of Go's `<`, and therefore of KPNG.
 */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
