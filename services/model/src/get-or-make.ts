interface Keyed<K, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): unknown;
}

/** Returns the value at `key`, making it and keeping it first where there is none. */
export function getOrMake<K, V>(map: Keyed<K, V>, key: K, make: () => V): V {
  const held = map.get(key);
  if (held !== undefined) return held;
  const made = make();
  map.set(key, made);
  return made;
}
