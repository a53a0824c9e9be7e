/** The part of Map and WeakMap that {@link getOrMake} needs. */
interface Keyed<K, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): unknown;
}

/**
 * Returns the value at `key`; if there is none, stores the result of `make` first. Caches of the watcher and
 * backend-kit share it, to compute a value at first use. Values must not be undefined.
 */
export function getOrMake<K, V>(map: Keyed<K, V>, key: K, make: () => V): V {
  const held = map.get(key);
  if (held !== undefined) return held;
  const made = make();
  map.set(key, made);
  return made;
}
