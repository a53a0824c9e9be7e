/**
 * True if `next` is certainly older than `held`, which no server says that has not lost data: its etcd was restored
 * from a backup or replaced.
 *
 * Source: KEP-5504, resourceVersions are whole numbers that can be compared within a kind. Others are never older.
 */
export function wentBack(held: string, next: string): boolean {
  if (!/^\d+$/.test(held) || !/^\d+$/.test(next)) return false;
  return held.length === next.length ? next < held : next.length < held.length;
}
