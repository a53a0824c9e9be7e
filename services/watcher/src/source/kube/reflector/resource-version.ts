/**
 * Returns a resource version as a number; undefined for a text that cannot be compared.
 *
 * Used by `Reflector` and the caches in `objects/`.
 */
export function versionOf(resourceVersion: string): bigint | undefined {
  return /^\d{1,19}$/.test(resourceVersion) ? BigInt(resourceVersion) : undefined;
}

/**
 * True if resource version `next` is certainly older than `current`. A server returns such a version only after it lost
 * data: its etcd was restored from a backup or replaced.
 *
 * Source: KEP-5504, resource versions are integers that can be compared within a kind. Other texts are never older.
 */
export function isOlder(next: string, current: string): boolean {
  if (!/^\d+$/.test(current) || !/^\d+$/.test(next)) return false;
  return current.length === next.length ? next < current : next.length < current.length;
}
